"""Options of commands. Most come from the typed options of `laaciq.options`, so that a word, its default and its help stand in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from laaciq.errors import BadOption
from laaciq.options import GroupSize, Options

Model = Annotated[str, typer.Argument(help="Folder, .gguf file or hub name; 'reference' is the embedded one.")]
Languages = Annotated[str | None, typer.Option(help="Only these, for example 'eng,swa,Tamil'.")]
TextSource = Annotated[
    str, typer.Option("--texts", help="'builtin', a folder, a .jsonl or .parquet file, datasets:NAME.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what another command wrote to the same place.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; made if missing, resumed if it is a run's.")]


def options_of(kind: type[Options]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that ends in `**options` an option for every described field of `kind`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        names = {parameter.name for parameter in own}
        described = {name: field for name, field in kind.model_fields.items() if field.description}
        added = [_parameter(name, field) for name, field in described.items() if name not in names]
        command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
        return command

    return decorate


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    kind, default = _console_type(field)
    switches = []
    if kind is bool:
        flag = name.replace("_", "-")
        off = f"/--no-{flag}" if field.default else ""
        switches = ["--symmetric/--affine" if name == "symmetric" else f"--{flag}{off}"]
    annotation = Annotated[kind, typer.Option(*switches, help=field.description)]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _console_type(field: FieldInfo) -> tuple[Any, Any]:
    """What is typed at the console for a field, and its default there."""
    if isinstance(field.default, tuple):
        return list[str], list(field.default)
    if field.default is None:
        plain = _plain(field.annotation)
        # Several names are typed with commas between.
        return (str if get_origin(plain) is tuple else plain) | None, None
    if get_origin(field.annotation) is Union:
        # A number or a word, such as a group size.
        return str, str(field.default)
    return type(field.default), field.default


def _plain(annotation: Any) -> Any:
    """The type of a value that may also be None."""
    inner = get_args(annotation)[0]
    return get_args(inner)[0] if get_origin(inner) is Annotated else inner


def read_values(options: dict[str, Any], languages: str | None) -> dict[str, Any]:
    """What was typed, as Python has it."""
    values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in options.items()}
    if "group_size" in values:
        values["group_size"] = group_size(values["group_size"])
    names = {"languages": languages} | {name: values[name] for name in ("calibrate", "hold_out") if name in values}
    return values | {name: None if text is None else tuple(split_names(text) or ()) for name, text in names.items()}


def split_names(names: str | None) -> list[str] | None:
    """`"eng, swa"` → `["eng", "swa"]`."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def split_numbers(option: str, text: str) -> tuple[int, ...]:
    """`"3, 4"` → `(3, 4)`."""
    try:
        return tuple(int(own) for own in text.split(",") if own.strip())
    except ValueError:
        raise BadOption(f"{option} {text!r} are no numbers: give for example 2,3,4") from None


def group_size(text: str) -> GroupSize:
    """`"64"` → 64; `channel` and `tensor` as they are."""
    if text == "channel":
        return "channel"
    if text == "tensor":
        return "tensor"
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"group size {text!r} is no number: give a number such as 64, 'channel' or 'tensor'") from None
