"""Commands that measure: all take `--out`, `--overwrite`, `--json` and `--device` besides the options of their verb."""

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
    typer.Option(help="Folder for the results, by default one in laaciq-runs. The same command continues in it."),
]


def measures(kind: type[Options]) -> Callable[[Callable[[Any, Path], None]], Callable[..., None]]:
    """Make a command of a function that shows a result, given the result and its folder. The command runs the verb of the same name in
    `laaciq.commands` with the options of `kind`."""

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
            # Heavy imports wait until options are known to be right, so that --help and errors come at once.
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
