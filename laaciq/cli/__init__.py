"""The command line: `laaciq COMMAND`. Each command is a thin layer over the Python function of the same name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from laaciq import __version__
from laaciq.cli import (
    bench,
    calibration,
    check,
    clipping,
    compare,
    evaluate,
    gateway,
    inspect,
    plan,
    quantize,
    run,
    sensitivity,
    sweep,
    texts,
)
from laaciq.errors import LaaciqError

app = typer.Typer(
    help="Quantize multilingual language models so that no language pays for the others.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    run.run,
    plan.plan,
    quantize.quantize,
    quantize.methods,
    evaluate.evaluate,
    compare.compare,
    compare.backends,
    check.check,
    bench.bench,
    inspect.profile,
    inspect.screen,
    inspect.survey,
    sensitivity.sensitivity,
    sweep.sweep,
    gateway.gateway,
    calibration.calibration,
    clipping.clipping,
    texts.texts,
):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"laaciq {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; what the user can mend is one sentence on standard error and exit status 2."""
    try:
        app()
    except LaaciqError as error:
        Console(stderr=True).print(f"[bold red]laaciq:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
