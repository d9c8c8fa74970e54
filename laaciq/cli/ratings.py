"""`laaciq rating-sheet` and `laaciq ratings`: people compare the continuations of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.cli.fitting import Column, FittedTable, language_column
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.engine.escaping import shell_command
from laaciq.options import RatingSheetOptions, RatingsOptions

if TYPE_CHECKING:
    from laaciq.evaluation.ratings import Ratings


@shared.takes(RatingSheetOptions)
def rating_sheet(
    out: Annotated[Path, typer.Option(help="Folder for the sheets and their key.")],
    overwrite: shared.Overwrite = False,
    **given: Any,
) -> None:
    """Write the continuations of a run as blinded pairs for people to rate: a CSV file and an offline HTML form per language.

    Give raters files of OUT/sheets. Keep OUT/key.json: it says which side is the original.
    """
    from laaciq.commands.rating_sheet import rating_sheet as rating_sheet_verb

    written = rating_sheet_verb(**given, out=out, overwrite=overwrite)
    shown = ", ".join(f"{code} {count}" for code, count in written.pairs.items())
    print_lines(
        f"Sheets: {out / 'sheets'} (pairs: {shown})",
        f"Not shown, because both models continue them alike: {sum(written.identical.values())} prompts",
        f"Key, not for raters: {out / 'key.json'}",
        f"Next: {shell_command(['laaciq', 'ratings', 'ANSWERS.csv', '--key', str(out / 'key.json')])}",
    )


@shared.takes(RatingsOptions)
def ratings(as_json: shared.AsJson = False, **given: Any) -> None:
    """Read the answers of raters, one file each, and print what people prefer by language."""
    from laaciq.commands.ratings import ratings as ratings_verb

    result = ratings_verb(**given)
    if as_json:
        print_json(result)
    else:
        print_table(ratings_table(result))


def ratings_table(result: Ratings) -> RenderableType:
    """Preferences by language, and overall in the last row."""
    from laaciq.report.paired_cells import p_value, points
    from laaciq.report.ratings_wording import FOOT, overall_sentence

    rows = [*result.languages, result.overall]
    columns = [
        language_column([f"{r.language or ''} {r.name}".strip() for r in rows], [r.language or "all" for r in rows]),
        Column("pairs", [str(r.pairs) for r in rows], 1),
        Column("raters", [str(r.raters) for r in rows], 0),
        Column("original better", [points(r.original) for r in rows], None),
        Column("quantized better", [points(r.quantized) for r in rows], None),
        Column("tie", [points(r.tie) for r in rows], 2),
        Column("net", [points(r.net) for r in rows], 4),
        Column("p", [p_value(r.p_corrected) for r in rows], 3),
    ]
    title = f"What people prefer: {result.original} or {result.quantized}, in % of pairs"
    table = FittedTable(columns, title=title, row_styles=[*[None] * len(result.languages), "bold"])
    return Group(table, Text(overall_sentence(result), style="bold"), Text(FOOT, style="dim"))
