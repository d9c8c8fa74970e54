"""`laaciq tasks` and `laaciq lm-eval`: lm-evaluation-harness on our texts and our checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from laaciq.cli import options as shared
from laaciq.cli.printing import print_lines
from laaciq.engine.escaping import shell_command
from laaciq.options import TasksOptions


@shared.takes(TasksOptions)
def tasks(
    out: Annotated[Path, typer.Argument(help="Folder for the task files; pass it to lm-eval as --include_path.")],
    overwrite: shared.Overwrite = False,
    **given: Any,
) -> None:
    """Write test text as tasks of lm-evaluation-harness: bits per byte, and which ending has its words in order."""
    from laaciq.commands.tasks import tasks as tasks_verb

    written = tasks_verb(out, overwrite=overwrite, **given)
    harness = ["laaciq", "lm-eval", "run", "--model", "laaciq", "--model_args", "pretrained=CHECKPOINT"]
    words = [*harness, "--include_path", str(out), "--tasks", ",".join(written.groups)]
    print_lines(
        *(f"{group}: {', '.join(members)}" for group, members in written.groups.items()),
        f"Next: {shell_command([*words, '--log_samples', '--output_path', 'FOLDER'])}",
        "Once for the original and once for the quantized model; then: laaciq task-results FOLDER_OF_ORIGINAL FOLDER_OF_QUANTIZED",
    )


def lm_eval(words: Annotated[list[str] | None, typer.Argument(help="Arguments of lm-eval.")] = None) -> None:
    """Run lm-evaluation-harness with 'laaciq' among its models. All other arguments go to lm-evaluation-harness."""
    from laaciq.lm_eval import command_line

    command_line(words or [])


# Every word is the harness's, --help too.
PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
