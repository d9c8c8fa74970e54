"""Recipe files: options of a command as YAML. `laaciq run --config recipe.yaml` reads one, and every run writes one beside its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laaciq.engine.escaping import yaml_text
from laaciq.engine.input_files import Refusal, read_text
from laaciq.engine.yaml_input import parse_mapping
from laaciq.errors import BadOption
from laaciq.options import Options

RECIPE = "recipe.yaml"
_RECIPE = Refusal(BadOption, "write one option per line, such as 'bits: 3'")


def read_recipe(path: Path) -> dict[str, Any]:
    """Options by name, as in the file."""
    return parse_mapping(read_text(path, _RECIPE), f"recipe {path}", _RECIPE)


def recipe_of(options: Options) -> str:
    """The given options, without defaults, as the text of a recipe file."""
    given = options.model_dump(mode="json", include=options.model_fields_set, exclude_none=True)
    return f"# Read by: laaciq {options.typed_verb()} --config {RECIPE}\n" + yaml_text(given)
