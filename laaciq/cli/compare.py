"""`laaciq compare`: other people's libraries and our methods side by side; `laaciq backends` says which libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, REFERENCE, CompareOptions

if TYPE_CHECKING:
    from laaciq.studies.comparison import Comparison

# Those of the report that fit into 80 columns, by their places there; the last only where a library left something alone.
_HEADS = {0: "method", 1: "bits", 3: "worst", 4: "95 %", 5: "", 6: "mean", 7: "disparity", 8: "s", 9: "left"}


@shared.options_of(CompareOptions)
def compare(
    model: shared.Model = REFERENCE,
    methods: Annotated[
        str | None,
        typer.Option(
            help="With commas between, ours ('laaciq methods') and libraries' ('laaciq backends'); planned ones with a size: planned@4.125."
        ),
    ] = None,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    out: shared.Out = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Quantize with several libraries and methods, and set what each costs each language beside its size.

    Run again, it resumes; run in another environment with other libraries, it adds their rows.
    """
    from laaciq.commands.compare import compare as compare_methods
    from laaciq.engine.progress import TerminalProgress

    target = out or CompareOptions(model=model).default_folder
    values = shared.read_values(options, languages)
    found = compare_methods(
        model,
        methods=shared.split_names(methods),
        texts=texts,
        out=target,
        overwrite=overwrite,
        device=device,
        progress=TerminalProgress(),
        **values,
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    console = Console()
    console.print(compare_table(found))
    console.print(f"Report: {Path(target) / 'report.html'}", soft_wrap=True, highlight=False)


def backends(as_json: shared.AsJson = False) -> None:
    """List what other libraries offer to 'laaciq compare', and which of them are installed.

    One that is not installed shows its extra: run pip install '.[EXTRA]' in your clone of laaciq.
    """
    from laaciq.backends.registry import BACKENDS

    if as_json:
        shown = ("name", "summary", "library", "extra", "bits", "reads_text", "installed")
        typer.echo(json.dumps([{name: getattr(own, name) for name in shown} for own in BACKENDS.values()], indent=1))
        return
    table = Table("name", "what it does", "bits", "reads text", "installed", box=None)
    for own in BACKENDS.values():
        here = "yes" if own.installed else f"no: '.\\[{own.extra}]'"
        table.add_row(own.name, own.summary, ", ".join(map(str, own.bits)), "yes" if own.reads_text else "no", here)
    Console().print(table)


def compare_table(found: Comparison) -> RenderableType:
    """Least loss of the worst-off language first; methods without a result at the end, with their reasons below."""
    from laaciq.report.compare_report import FOOT, cells, title

    table = Table(title=title(found), title_justify="left", box=None, pad_edge=False)
    said = any(row.made.left_alone for row in found.measured if row.made)
    heads = {place: heading for place, heading in _HEADS.items() if said or heading != "left"}
    for heading in heads.values():
        left = heading in ("method", "95 %", "")
        table.add_column(
            heading, justify="left" if left else "right", style="dim" if heading == "95 %" else None, no_wrap=True
        )
    for row in found.measured:
        shown = cells(row)
        table.add_row(*(shown[place] for place in heads), style="bold" if row.method.startswith("planned") else None)
    for row in found.failed:
        table.add_row(row.method, "–", style="dim")
    reasons = [Text(f"{row.method}: {row.reason}", style="red") for row in found.failed]
    return Group(table, Text(FOOT, style="dim"), *reasons)
