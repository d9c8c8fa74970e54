"""`laaciq compare`: other people's libraries and our methods side by side; `laaciq backends` says which libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.cli.fitting import Column, FittedTable
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.options import CompareOptions

if TYPE_CHECKING:
    from laaciq.studies.comparison import Comparison

# Columns of the report's table by their place there: heading, and importance where the terminal is narrow. Libraries left layers
# unquantized ("left") in few rows; the column is shown only then.
_COLUMNS: dict[int, tuple[str, int | None]] = {
    0: ("method", None),
    1: ("bits", None),
    3: ("worst", None),
    4: ("95 %", 2),
    5: ("", 3),
    6: ("mean", 4),
    7: ("disparity", 5),
    8: ("s", 0),
    9: ("left", 1),
}


@calls_verb(CompareOptions)
def compare(result: Comparison, call: Call[CompareOptions]) -> None:
    """Quantize with several libraries and methods, and compare their sizes and what each costs each language.

    If it is interrupted, the same command resumes. In an environment with other libraries, it adds their rows.
    """
    print_table(compare_table(result))
    print_lines(f"Report: {call.out / 'report.html'}")


@shared.takes()
def backends(as_json: shared.AsJson = False) -> None:
    """List what other libraries offer to 'laaciq compare', and which of them are installed.

    One that is not installed shows its extra: run pip install '.[EXTRA]' in your clone of laaciq.
    """
    from laaciq.backends.registry import BACKENDS

    if as_json:
        shown = ("name", "summary", "library", "extra", "bits", "reads_text", "installed")
        print_json([{name: getattr(backend, name) for name in shown} for backend in BACKENDS.values()])
        return
    table = Table("name", "what it does", "bits", "reads text", "installed", box=None)
    for backend in BACKENDS.values():
        bits, reads = ", ".join(map(str, backend.bits)), "yes" if backend.reads_text else "no"
        installed = "yes" if backend.installed else f"no: '.[{backend.extra}]'"
        table.add_row(backend.name, backend.summary, bits, reads, installed)
    print_table(table)


def compare_table(result: Comparison) -> RenderableType:
    """Least loss of the worst-off language first; methods without a result at the end, with their reasons below."""
    from laaciq.report.compare_report import cells, footnotes, relation_lines, title

    rows = [cells(row) for row in result.measured]
    without = [row.method for row in result.failed]
    columns = []
    for place, (heading, importance) in _COLUMNS.items():
        shown = [row[place] for row in rows] + (without if place == 0 else ["–" if place == 1 else ""] * len(without))
        if heading == "left" and set(shown) <= {"–", ""}:
            continue
        left = heading in ("method", "95 %", "")
        style = "dim" if heading == "95 %" else None
        columns.append(Column(heading, shown, importance, "left" if left else "right", style))
    styles = ["bold" if row.method.startswith("planned") else None for row in result.measured] + ["dim"] * len(without)
    table = FittedTable(columns, title=title(result), row_styles=styles)
    theory = [Text(line) for line in relation_lines(result)]
    reasons = [Text(f"{row.method}: {row.reason}", style="red") for row in result.failed]
    return Group(table, *(Text(line, style="dim") for line in footnotes(result)), *theory, *reasons)
