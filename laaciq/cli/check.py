"""`laaciq check`: a gate for continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laaciq.cli import options as shared


@shared.takes()
def check(
    run: Annotated[Path, typer.Argument(help="Folder of a finished 'laaciq run', or an evaluation.json.")],
    max_degradation: Annotated[
        float | None, typer.Option("--max-D", help="Largest D that a language may have; 0.05 is 5 %.")
    ] = None,
    max_disparity: Annotated[
        float | None, typer.Option(help="Largest disparity, max D − min D; 0.03 is 3 percentage points.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Judge by the upper end of the 95 % interval: pass only what is shown to hold."),
    ] = False,
    lenient: Annotated[
        bool,
        typer.Option("--lenient", help="Judge by the lower end of the 95 % interval: fail only what is shown to fail."),
    ] = False,
    as_json: shared.AsJson = False,
) -> None:
    """Judge a run by limits on what languages lose. Prints PASS, FAIL or INCONCLUSIVE for every limit.

    PASS: the estimate is within the limit.

    FAIL: the estimate exceeds it, a language collapsed, or fewer than two
    languages can be compared for --max-disparity.

    INCONCLUSIVE: the limit may hold, but the run does not show it. With
    --strict the estimate is within the limit and the upper end is not; or a
    language has fewer than 8 documents; or the original serves no language.

    Exit status: 0 if every limit passes, 1 if one fails, 3 if none fails and
    one is inconclusive, 2 if an option is wrong.
    """
    from laaciq.commands.check import check as judge_run

    result = judge_run(
        run, max_degradation=max_degradation, max_disparity=max_disparity, strict=strict, lenient=lenient
    )
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
    else:
        for limit in result.limits:
            typer.echo(str(limit))
    raise typer.Exit(result.exit_status)
