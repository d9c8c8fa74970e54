"""`laaciq check`: a gate for continuous integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from laaciq.cli import options as shared


@shared.takes()
def check(
    run: Annotated[Path, typer.Argument(help="Folder of a finished 'laaciq run', or an evaluation.json.")],
    max_degradation: Annotated[
        float | None, typer.Option("--max-D", help="Most that a language may lose, 0.05 is 5 %.")
    ] = None,
    max_disparity: Annotated[float | None, typer.Option(help="Largest max D − min D.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Judge by the interval's upper end, not its lower.")] = False,
    as_json: shared.AsJson = False,
) -> None:
    """Exit with status 1, and one line for each limit that is exceeded."""
    from laaciq.commands.check import check as find_failures

    failures = find_failures(run, max_degradation=max_degradation, max_disparity=max_disparity, strict=strict)
    if as_json:
        typer.echo(json.dumps([failure.model_dump() for failure in failures], indent=1))
    else:
        for failure in failures:
            typer.echo(f"{failure.language or 'all'}: {failure.reason}")
    if failures:
        raise typer.Exit(1)
