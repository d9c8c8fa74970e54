"""Commands that write: each takes `--out`, `--overwrite`, `--json` and `--device` besides the options of its verb; some take `--workers`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import typer

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json
from laaciq.options import Options, flag

Chosen = TypeVar("Chosen", bound=Options)


@dataclass(frozen=True)
class Out:
    """The option `--out` of a command. If it is neither given nor required, results go to a folder named after the options."""

    help: str = "Folder for the results; the same command resumes there. Default: a folder in laaciq-runs named after the options."
    default: Path | None = None
    required: bool = False

    @property
    def parameter(self) -> inspect.Parameter:
        kind = Path if self.required or self.default else Path | None
        default = inspect.Parameter.empty if self.required else self.default
        return shared.keyword("out", Annotated[kind, typer.Option(help=self.help)], default)


@dataclass(frozen=True)
class Call(Generic[Chosen]):
    """What the user called: the options, where the results are, and the settings."""

    options: Chosen
    out: Path
    settings: Mapping[str, Any] = field(default_factory=dict)

    def settings_for(self, kind: type[Options]) -> list[str]:
        """Words of the settings that a following command with options of `kind` repeats: those of this call that it takes."""
        # Not --out and --overwrite: the results of another command belong in another folder.
        repeated = [p for p in _settings_of(kind) if p.name not in ("overwrite", "as_json")]
        changed = [p.name for p in repeated if self.settings.get(p.name, p.default) != p.default]
        return [word for name in changed for word in (flag(name), str(self.settings[name]))]


_BESIDE = [
    shared.keyword("overwrite", shared.Overwrite, False),
    shared.keyword("as_json", shared.AsJson, False),
    shared.keyword("device", shared.Device, "auto"),
]
_BOUNDING = [
    shared.keyword("gpu_memory", shared.GpuMemory, None),
    shared.keyword("host_memory", shared.HostMemory, None),
]
_SHARING = [shared.keyword("workers", shared.Workers, None), shared.keyword("ray", shared.Ray, None)]


def _settings_of(kind: type[Options]) -> list[inspect.Parameter]:
    """What a command takes beside its options and `--out`."""
    return _BESIDE + (_SHARING if kind.shares_work else []) + (_BOUNDING if kind.bounds_memory else [])


def calls_verb(
    kind: type[Chosen], *, out: Out | None = None
) -> Callable[[Callable[[Any, Call[Chosen]], None]], Callable[..., None]]:
    """A decorator that turns a function `show(result, call)` into a command. The command calls the verb of the same name in
    `laaciq.commands` with options of `kind`, then shows the result.
    """
    beside = [(out or Out()).parameter, *_settings_of(kind)]

    def decorate(show: Callable[[Any, Call[Chosen]], None]) -> Callable[..., None]:
        name = show.__name__

        def command(*, out: Path | None, as_json: bool, **keywords: Any) -> None:
            plain = {parameter.name for parameter in beside}
            options = kind.of(**{name: value for name, value in keywords.items() if name not in plain})
            target = options.default_folder if out is None else out
            # Heavy imports come after options are checked, so that --help and errors appear at once.
            from laaciq.engine.progress import TerminalProgress

            verb = getattr(import_module(f"laaciq.commands.{name}"), name)
            result = verb(**keywords, out=target, progress=TerminalProgress())
            if as_json:
                print_json(result)
            else:
                show(result, Call(options, target, keywords))

        command.__name__, command.__doc__ = name, show.__doc__
        command.__signature__ = inspect.Signature(beside)  # type: ignore[attr-defined]
        return shared.takes(kind)(command)

    return decorate
