"""`--config`: values of a recipe file replace a command's defaults, so that options on the command line take precedence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from laaciq.engine.recipe import read_recipe
from laaciq.errors import BadOption

# Options of the command line that a recipe cannot set.
_EXCLUDED = {"config", "help"}


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """The callback of `--config`. It runs before the other options are read."""
    if path is not None and not context.resilient_parsing:
        context.default_map = defaults_of(read_recipe(path), context.command.params)
    return path


def defaults_of(recipe: dict[str, Any], parameters: Iterable[Any]) -> dict[str, Any]:
    """The recipe by parameter name, with values as on the command line."""
    parameter_of = {
        _plain(switch): (parameter, switch in parameter.secondary_opts)
        for parameter in parameters
        for switch in (parameter.name, *parameter.opts, *parameter.secondary_opts)
        if parameter.name not in _EXCLUDED
    }
    defaults: dict[str, Any] = {}
    for key, value in recipe.items():
        if _plain(key) not in parameter_of:
            near = difflib.get_close_matches(_plain(key), parameter_of, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known options: {', '.join(sorted(parameter_of))}"
            raise BadOption(f"unknown option {key!r} in the recipe: {hint}")
        parameter, negated = parameter_of[_plain(key)]
        if value is not None:
            defaults[parameter.name] = _typed(key, value, parameter, negated)
    return defaults


def _typed(key: str, value: Any, parameter: Any, negated: bool) -> Any:
    """A YAML value in the form of the command line."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise BadOption(f"option {key!r} in the recipe cannot be {value!r}: give true or false")
        return value != negated
    values = value if isinstance(value, list) else [value]
    if any(isinstance(entry, (dict, list, bool)) or entry is None for entry in values):
        raise BadOption(f"option {key!r} in the recipe cannot be {value!r}: give a word, a number, or a list of those")
    words = [str(entry) for entry in values]
    return words if parameter.multiple or parameter.nargs != 1 else ",".join(words)


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
