"""Commands that measure: each takes `--out`, `--overwrite`, `--json` and `--device` besides the options of its verb; most take `--workers`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json
from laaciq.options import Options

Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the results; the same command resumes there. Default: a folder in laaciq-runs named after the options."
    ),
]


def measures(
    kind: type[Options], *, workers: bool = False
) -> Callable[[Callable[[Any, Path], None]], Callable[..., None]]:
    """A decorator that turns a function `show(result, folder)` into a command. The command calls the verb of the same name in
    `laaciq.commands` with options of `kind`, then shows the result. With `workers` it takes `--workers` and `--ray`.
    """

    def decorate(show: Callable[[Any, Path], None]) -> Callable[..., None]:
        name = show.__name__

        def call(out: Path | None, as_json: bool, plain: dict[str, Any], given: dict[str, Any]) -> None:
            options = kind.of(**given)
            folder = options.default_folder if out is None else out
            # Heavy imports come after options are checked, so that --help and errors appear at once.
            from laaciq.engine.progress import TerminalProgress

            verb = getattr(import_module(f"laaciq.commands.{name}"), name)
            result = verb(**given, out=folder, progress=TerminalProgress(), **plain)
            if as_json:
                print_json(result)
            else:
                show(result, folder)

        def command(
            out: Out = None,
            overwrite: shared.Overwrite = False,
            as_json: shared.AsJson = False,
            device: shared.Device = "auto",
            **given: Any,
        ) -> None:
            call(out, as_json, {"overwrite": overwrite, "device": device}, given)

        def command_with_workers(
            out: Out = None,
            overwrite: shared.Overwrite = False,
            as_json: shared.AsJson = False,
            device: shared.Device = "auto",
            workers: shared.Workers = None,
            ray: shared.Ray = None,
            **given: Any,
        ) -> None:
            plain = {"overwrite": overwrite, "device": device, "workers": workers, "ray": ray}
            call(out, as_json, plain, given)

        chosen = command_with_workers if workers else command
        chosen.__name__, chosen.__doc__ = name, show.__doc__
        return shared.takes(kind)(chosen)

    return decorate
