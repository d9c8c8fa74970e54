"""Commands that measure: each takes `--out`, `--overwrite`, `--json` and `--device` besides the options of its verb."""

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


def measures(kind: type[Options]) -> Callable[[Callable[[Any, Path], None]], Callable[..., None]]:
    """A decorator that turns a function `show(result, folder)` into a command. The command calls the verb of the same name in
    `laaciq.commands` with options of `kind`, then shows the result.
    """

    def decorate(show: Callable[[Any, Path], None]) -> Callable[..., None]:
        name = show.__name__

        def command(
            out: Out = None,
            overwrite: shared.Overwrite = False,
            as_json: shared.AsJson = False,
            device: shared.Device = "auto",
            **given: Any,
        ) -> None:
            options = kind.of(**given)
            folder = options.default_folder if out is None else out
            # Heavy imports come after options are checked, so that --help and errors appear at once.
            from laaciq.engine.progress import TerminalProgress

            verb = getattr(import_module(f"laaciq.commands.{name}"), name)
            result = verb(**given, out=folder, overwrite=overwrite, device=device, progress=TerminalProgress())
            if as_json:
                print_json(result)
            else:
                show(result, folder)

        command.__name__, command.__doc__ = name, show.__doc__
        return shared.takes(kind)(command)

    return decorate
