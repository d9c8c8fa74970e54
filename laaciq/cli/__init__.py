"""The command line: `laaciq COMMAND`. Each command is a thin layer over the Python function of the same name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

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
    intervene,
    lab,
    lm_eval,
    mixture,
    plan,
    profile,
    quantize,
    ratings,
    run,
    sensitivity,
    sweep,
    task_results,
    texts,
)
from laaciq.cli.interruption import Interrupted, interruptible, interruption_message
from laaciq.cli.messages import make_messages_inert, print_traceback
from laaciq.engine.failures import explained
from laaciq.engine.terminal import Terminal
from laaciq.engine.waiting import wait_briefly
from laaciq.errors import LaaciqError
from laaciq.version import __version__

app = typer.Typer(
    help="Quantize multilingual language models so that no language pays for the others.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Groups of `laaciq --help`, in their order.
_GROUPS = {
    "Main": (run.run, plan.plan, quantize.quantize, evaluate.evaluate, check.check, card.card, bench.bench),
    "Inspect": (profile.profile, profile.screen, profile.survey, texts.texts, quantize.methods, compare.backends),
    "Study": (
        *(compare.compare, sensitivity.sensitivity, sweep.sweep, gateway.gateway, mixture.mixture),
        *(intervene.intervene, clipping.clipping, ratings.rating_sheet, ratings.ratings),
    ),
    "Interoperate": (export.export, imatrix.imatrix, lm_eval.tasks, task_results.task_results),
}
for _group, _commands in _GROUPS.items():
    for _command in _commands:
        app.command(rich_help_panel=_group)(_command)
app.add_typer(lab.app, name="lab", rich_help_panel="Study")
app.command("lm-eval", context_settings=lm_eval.PASSED_ON, rich_help_panel="Interoperate")(lm_eval.lm_eval)


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
    """Run the command line. An error that the user can fix, such as a wrong option, a full disk or too little memory, is one sentence on
    standard error and exit status 2. Ctrl-C and SIGTERM give one line that says how to resume, and exit status 130 or 143.
    """
    make_messages_inert()
    wait_briefly()
    try:
        with interruptible():
            app(prog_name="laaciq")
    except Interrupted as interruption:
        Terminal(stderr=True).print(interruption_message(sys.argv), soft_wrap=True)
        sys.exit(interruption.status)
    except Exception as error:
        fixable = error if isinstance(error, LaaciqError) else explained(error)
        if fixable is None:
            print_traceback(error)
            sys.exit(1)
        Terminal(stderr=True).print(Text.assemble(("laaciq:", "bold red"), f" {fixable}"), soft_wrap=True)
        sys.exit(2)
