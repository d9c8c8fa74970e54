"""Options of commands. Most come from the typed options of `laaciq.options`, so that name, default and help are in one place.

A command decorated with `takes` receives as `**given` only the options on the command line or in a recipe file. So pydantic's
`model_fields_set` is what the user gave, and an option that a method does not read can be refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo

from laaciq.cli.completion import COMPLETERS
from laaciq.cli.recipe import read_config
from laaciq.errors import BadOption
from laaciq.options import Options, flag, is_repeated

# A list of choices with more characters would leave too narrow a column for the help, which names them too.
_LONG = 40
# Sources of click that mean that the user gave a value: typed, or in a recipe.
_GIVEN_BY = {"COMMANDLINE", "DEFAULT_MAP"}

# Panels of `laaciq COMMAND --help`, in their order.
_PANELS = {
    "Model and texts": (
        *("model", "checkpoint", "against", "original", "quantized", "texts", "languages", "passages", "exposure"),
        *("claims", "quick", "key", "pairs"),
    ),
    "Method": (
        *("method", "methods", "plan", "bits", "group_size", "symmetric", "keep", "keep_by", "protect", "protect_bits"),
        *("outlier_bits", "outlier_kurtosis", "outlier_by", "attention_bits", "embedding_bits", "rank", "tune"),
        *("separate", "allow_left_alone", "format", "runtime", "fold"),
        *("do", "kurtosis", "blocks", "rates", "to_bits"),
    ),
    "Budget": ("budget", "budget_for", "objective", "language_weight", "effort", "table_overhead"),
    "Calibration": (
        *("calibration_languages", "hold_out", "calibration", "calibration_passages", "draws"),
        *("single_language", "rounds", "leave_out"),
    ),
    "Measuring": (
        *("baseline", "window", "chat", "served_bound", "seed", "part", "tolerance", "metric"),
        *("generate", "prompts", "numeric_check"),
        *("predictive", "dtype", "prompt_tokens", "new_tokens", "batch", "decoding", "device", "gpu_memory"),
        *("host_memory", "workers", "ray"),
        *("max_degradation", "max_disparity", "strict", "lenient"),
    ),
    "Output": ("out", "overwrite", "as_json", "base_model", "name", "license", "config"),
}
PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}
_ORDER = {name: place for place, name in enumerate(PANEL_OF)}

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of tables.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="Where models run; auto is cuda if available, else cpu.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Number of worker processes that Ray starts on this machine, or on the cluster of --ray (extra 'ray'). Results are the same. "
        "Default: none; with --ray, one per GPU, or one per machine if models run on CPUs.",
        metavar="INTEGER",
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster to use, as HOST:PORT or auto; give it on one of its machines. Default: none.",
        metavar="ADDRESS",
    ),
]
GpuMemory = Annotated[
    str | None,
    typer.Option(
        help="Most GPU memory to use, such as 24GB. Blocks that do not fit are offloaded. Default: what is free.",
        metavar="SIZE",
    ),
]
HostMemory = Annotated[
    str | None,
    typer.Option(
        help="On a CPU: most memory for weights and work, such as 24GB; blocks that do not fit are read from their files when they run. "
        "Default: no bound. Beside a GPU: offloaded blocks lie in host memory if they fit in it, else in their files. Default: what is free.",
        metavar="SIZE",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what another command wrote there.")]


def takes(kind: type[Options] | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an argument or option for every field of `kind`, and `--config`. What was given reaches it as `**given`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        explicit = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        names = {parameter.name for parameter in explicit}
        fields = {} if kind is None else {n: field for n, field in kind.model_fields.items() if n not in names}
        options = [_option(name, field, kind is not None and name in kind.positional) for name, field in fields.items()]

        @wraps(command)
        def invoked(context: typer.Context, **values: Any) -> None:
            given = {o.name: o.read(values[o.name]) for o in options if _is_given(context, o.name)}
            command(**{name: values[name] for name in names}, **given)

        shown = [*(option.parameter for option in options), *explicit, _CONFIG]
        parameters = [_CONTEXT, *sorted(map(_arranged, shown), key=_place)]
        invoked.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        invoked.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return invoked

    return decorate


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name in _GIVEN_BY


def _arranged(parameter: inspect.Parameter) -> inspect.Parameter:
    """With its panel and what TAB offers; only by keyword, so that the order is free."""
    kind, info = get_args(parameter.annotation)
    info = copy(info)
    # typer has a panel for arguments.
    info.rich_help_panel = None if isinstance(info, ArgumentInfo) else PANEL_OF.get(parameter.name)
    if kind is not bool:
        info.autocompletion = info.autocompletion or COMPLETERS.get(parameter.name)
    return parameter.replace(annotation=Annotated[kind, info], kind=inspect.Parameter.KEYWORD_ONLY)


def _place(parameter: inspect.Parameter) -> int:
    """Arguments come first, then options by panel."""
    if isinstance(get_args(parameter.annotation)[1], ArgumentInfo):
        return -1
    return _ORDER.get(parameter.name, len(_ORDER))


@dataclass(frozen=True)
class _Option:
    """A parameter of a command, and how its value is read into what Python takes."""

    parameter: inspect.Parameter
    read: Callable[[Any], Any]

    @property
    def name(self) -> str:
        return self.parameter.name


def _option(name: str, field: FieldInfo, positional: bool) -> _Option:
    kind, default, read = _console_form(name, field)
    switches = []
    if kind is bool:
        switches = [
            "--symmetric/--affine"
            if name == "symmetric"
            else flag(name) + (f"/{flag(f'no_{name}')}" if default else "")
        ]
    elif not positional:
        switches = [flag(name)]
    long = get_origin(kind) is Literal and len(str(get_args(kind))) > _LONG
    metavar = f"<{name.replace('_', ' ')}>" if long else None
    info = (typer.Argument if positional else typer.Option)(*switches, help=field.description, metavar=metavar)
    return _Option(keyword(name, Annotated[kind, info], default), read)


def _console_form(name: str, field: FieldInfo) -> tuple[Any, Any, Callable[[Any], Any]]:
    """The type of what is typed for a field, its default, and how it is read."""
    default: Any = inspect.Parameter.empty if field.is_required() else field.default
    types = _types(field.annotation)
    kind = types[0] if len(types) == 1 else str
    if get_origin(kind) is not tuple:
        # A number or a word, such as a group size, has a default that is a number.
        default = str(default) if kind is str and isinstance(default, int) else default
        return (kind | None if default is None else kind), default, _as_it_is
    if is_repeated(field) or field.is_required():
        return list[str], default if field.is_required() else list(default), tuple
    numbers = _types(get_args(kind)[0]) == [int]
    read = partial(split_numbers, name) if numbers else split_names
    return (str | None, None, read) if default is None else (str, ",".join(map(str, default)), read)


def _as_it_is(value: Any) -> Any:
    return value


def _types(annotation: Any) -> list[Any]:
    """The types of a union without None and without what pydantic checks beside."""
    if get_origin(annotation) is Annotated:
        return _types(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for member in get_args(annotation) if member is not NoneType for kind in _types(member)]
    return [annotation]


def split_names(names: str) -> tuple[str, ...]:
    """`"eng, swa"` → `("eng", "swa")`."""
    return tuple(name.strip() for name in names.split(",") if name.strip())


def split_numbers(option: str, text: str) -> tuple[int, ...]:
    """`"3, 4"` → `(3, 4)`."""
    try:
        return tuple(int(number) for number in text.split(",") if number.strip())
    except ValueError:
        raise BadOption(f"{option} {text!r} is not a list of numbers: give for example 2,3,4") from None


def keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_CONTEXT = keyword("context", typer.Context)
_CONFIG = keyword(
    "config",
    Annotated[
        Path | None,
        typer.Option(
            help="YAML file of options, such as the recipe.yaml that every run writes. Options on the command line take precedence.",
            callback=read_config,
            is_eager=True,
        ),
    ],
    None,
)
