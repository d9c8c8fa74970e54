"""`laaciq check`: a gate for continuous integration."""

from __future__ import annotations

from typing import Any

import typer

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_lines
from laaciq.options import CheckOptions


@shared.takes(CheckOptions)
def check(as_json: shared.AsJson = False, **given: Any) -> None:
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
    from laaciq.commands.check import check as check_verb

    result = check_verb(**given)
    if as_json:
        print_json(result)
    else:
        print_lines(*map(str, result.limits))
    raise typer.Exit(result.exit_status)
