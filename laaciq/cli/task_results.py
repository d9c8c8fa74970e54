"""`laaciq task-results`: answers to tasks before and after quantization."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.cli.fitting import Column, FittedTable, language_column
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.options import TaskResultsOptions

if TYPE_CHECKING:
    from laaciq.evaluation.task_results import TaskResults

# Headings of the terminal, with their importance where it is narrow, by place in the report's table.
_COLUMNS: dict[int, tuple[str, int | None]] = {
    1: ("task", 0),
    2: ("items", 1),
    3: ("accuracy", None),
    4: ("difference", 5),
    5: ("right → wrong", 3),
    6: ("wrong → right", 2),
    7: ("p", 4),
}


@shared.takes(TaskResultsOptions)
def task_results(
    out: Annotated[Path | None, typer.Option(help="Folder for a report. Default: none is written.")] = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    **given: Any,
) -> None:
    """Compare what lm-evaluation-harness logged of two models, item by item: which answers turned wrong, by language."""
    from laaciq.commands.task_results import task_results as task_results_verb

    result = task_results_verb(**given, out=out, overwrite=overwrite)
    if as_json:
        print_json(result)
        return
    print_table(task_table(result))
    if out is not None:
        print_lines(f"Report: {out / 'report.html'}")


def task_table(result: TaskResults) -> RenderableType:
    """Right and wrong answers by task."""
    from laaciq.report.paired_cells import FOOT
    from laaciq.report.task_report import cells, sentences

    rows = [cells(task) for task in result.tasks]
    labels = [row[0] for row in rows]
    columns = [language_column(labels, [task.language or task.task for task in result.tasks])]
    columns += [
        Column(heading, [row[place] for row in rows], importance, "left" if place in (1, 4) else "right")
        for place, (heading, importance) in _COLUMNS.items()
    ]
    table = FittedTable(columns, title=f"{result.original} → {result.quantized}, {result.metric}")
    return Group(table, *(Text(line, style="bold") for line in sentences(result)), Text(FOOT, style="dim"))
