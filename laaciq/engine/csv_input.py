"""Tables as CSV that this program did not just write: of bounded size, whole, and with the columns that are needed.

Spreadsheets write commas, semicolons or tabs, depending on the country; the header decides.
"""

from __future__ import annotations

import csv
from pathlib import Path

from laaciq.engine.input_files import MOST_SETTINGS_BYTES, Refusal, read_text

_SEPARATORS = ",;\t"


def read_rows(path: Path, columns: tuple[str, ...], refusal: Refusal) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with their numbers, by the names of its `columns`. Other columns are ignored."""
    text = read_text(path, refusal, most=MOST_SETTINGS_BYTES)
    head = text.partition("\n")[0]
    separator = max(_SEPARATORS, key=head.count)
    reader = csv.reader(text.split("\n"), delimiter=separator, strict=True)
    try:
        rows = [(number, row) for number, row in enumerate(reader, start=1) if row]
    except csv.Error as error:
        raise refusal.of(path, f"is not CSV (row {reader.line_num}: {error})") from None
    if not rows:
        raise refusal.of(path, "is empty")
    heading = [name.strip() for name in rows[0][1]]
    for column in columns:
        if heading.count(column) != 1:
            raise refusal.of(path, f"has {heading.count(column) or 'no'} columns {column!r}")
    for number, row in rows[1:]:
        if len(row) != len(heading):
            raise refusal.of(path, f"has {len(row)} cells in row {number}, and {len(heading)} in its first row")
    places = {column: heading.index(column) for column in columns}
    return [(number, {column: row[place] for column, place in places.items()}) for number, row in rows[1:]]
