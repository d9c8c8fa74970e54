"""`laaciq texts`: the contents of a set of texts."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_table
from laaciq.corpus import Texts, read_texts
from laaciq.options import BUILTIN
from laaciq.options.groups import TextOptions


@shared.takes()
def texts(
    source: Annotated[
        str,
        typer.Argument(
            help="Texts: 'builtin', 'flores200', 'ntrex128', 'udhr', 'belebele', a folder, a .jsonl or .parquet file, or datasets:NAME."
        ),
    ] = BUILTIN,
    languages: Annotated[
        str | None, typer.Option(help="Show only these languages, for example 'eng,swa,Tamil'. Default: all.")
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Show the languages, scripts, passages and bytes of a set of texts."""
    given = TextOptions.of(texts=source, languages=None if languages is None else shared.split_names(languages))
    chosen = read_texts(given.texts).select(given.languages)
    if as_json:
        print_json(_summary(chosen))
    else:
        print_table(_table(chosen))


def _summary(texts: Texts) -> dict[str, object]:
    return {
        "name": texts.name,
        "parallel": texts.parallel,
        "languages": [
            {
                "language": code,
                "name": passages.language.name,
                "script": passages.language.script,
                "passages": len(passages),
                "documents": len(set(passages.documents)),
                "bytes": passages.byte_count,
            }
            for code, passages in texts.by_language.items()
        ],
    }


def _table(texts: Texts) -> Table:
    kind = "parallel" if texts.parallel else "not parallel"
    scripts = {passages.language.script for passages in texts.by_language.values()}
    count = len(texts.languages)
    title = (
        f"{texts.name}: {count} language{'s' * (count > 1)}, {len(scripts)} script{'s' * (len(scripts) > 1)}, {kind}"
    )
    table = Table(title=title, title_justify="left")
    for heading in ("language", "name", "script"):
        table.add_column(heading)
    for heading in ("passages", "bytes", "bytes per passage"):
        table.add_column(heading, justify="right")
    for code, passages in texts.by_language.items():
        size = passages.byte_count
        table.add_row(
            code,
            passages.language.name,
            passages.language.script,
            f"{len(passages)}",
            f"{size:,}",
            f"{size / len(passages):.0f}",
        )
    return table
