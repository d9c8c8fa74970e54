"""The command line: `laaciq COMMAND`. Each command is a thin layer over the Python function of the same name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from laaciq.cli import (
    bench,
    card,
    check,
    clipping,
    compare,
    evaluate,
    export,
    gateway,
    imatrix,
    lm_eval,
    mixture,
    plan,
    profile,
    quantize,
    run,
    sensitivity,
    sweep,
    texts,
)
from laaciq.errors import LaaciqError
from laaciq.version import __version__

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
    export.export,
    imatrix.imatrix,
    check.check,
    card.card,
    bench.bench,
    profile.profile,
    profile.screen,
    profile.survey,
    sensitivity.sensitivity,
    sweep.sweep,
    gateway.gateway,
    mixture.mixture,
    clipping.clipping,
    texts.texts,
    lm_eval.tasks,
):
    app.command()(command)
app.command("lm-eval", context_settings=lm_eval.PASSED_ON)(lm_eval.lm_eval)


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
