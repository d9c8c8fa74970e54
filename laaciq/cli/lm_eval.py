"""`laaciq tasks` and `laaciq lm-eval`: lm-evaluation-harness on our texts and our checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from laaciq.cli import options as shared
from laaciq.options import BUILTIN


def tasks(
    out: Annotated[Path, typer.Argument(help="Folder for the task files, to be given as --include_path.")],
    overwrite: shared.Overwrite = False,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    seed: Annotated[int, typer.Option(help="Of the split, as in 'laaciq run'.")] = 0,
) -> None:
    """Write test text as tasks of lm-evaluation-harness: bits per byte, and whose words are in order."""
    from laaciq.commands.tasks import tasks as write_tasks

    written = write_tasks(out, overwrite=overwrite, texts=texts, languages=shared.split_names(languages), seed=seed)
    console = Console()
    for group, members in written.groups.items():
        console.print(f"{group}: {', '.join(members)}", soft_wrap=True, highlight=False)
    first = next(iter(written.groups))
    console.print(
        f"Next: laaciq lm-eval run --model laaciq --model_args pretrained=CHECKPOINT --include_path {out} --tasks {first}",
        soft_wrap=True,
        highlight=False,
    )


def lm_eval(words: Annotated[list[str] | None, typer.Argument(help="What lm-eval takes.")] = None) -> None:
    """lm-evaluation-harness, whose models now include 'laaciq': all further words are its own."""
    from laaciq.lm_eval import command_line

    command_line(words or [])


# Every word is the harness's, --help too.
PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
