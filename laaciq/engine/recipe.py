"""Recipe files: options of a command as YAML. `laaciq run --config recipe.yaml` reads one, and every run writes one beside its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from laaciq.engine.escaping import yaml_text
from laaciq.errors import BadOption
from laaciq.options import Options

RECIPE = "recipe.yaml"


def read_recipe(path: Path) -> dict[str, Any]:
    """Options by name, as in the file."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"recipe {path} cannot be read ({error}): give a YAML file such as 'bits: 3'") from None
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise BadOption(
            f"recipe {path} is not valid YAML ({problem}): write one option per line, such as 'bits: 3'"
        ) from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise BadOption(
            f"recipe {path} does not map option names to values: write one option per line, such as 'bits: 3'"
        )
    return content


def recipe_of(options: Options) -> str:
    """The given options, without defaults, as the text of a recipe file."""
    given = options.model_dump(mode="json", include=options.model_fields_set, exclude_none=True)
    return f"# Read by: laaciq {options.verb} --config {RECIPE}\n" + yaml_text(given)
