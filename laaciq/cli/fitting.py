"""Tables that fit the terminal: if the width does not suffice, columns are shortened or dropped, the least important first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult  # noqa: TID251 (only as a type)
from rich.table import Table
from rich.text import Text

Cell = str | Text


@dataclass(frozen=True)
class Column:
    """A column whose `importance` is None is always shown. Of the others, the least important is dropped first.

    A column with a `short` variant (heading and cells) is shortened before it is dropped.
    """

    heading: str
    cells: Sequence[Cell]
    importance: int | None = None
    justify: JustifyMethod = "right"
    style: str | None = None
    short: tuple[str, Sequence[Cell]] | None = None

    @property
    def width(self) -> int:
        return max(map(_length, (self.heading, *self.cells)))

    @property
    def reducible(self) -> bool:
        return self.short is not None or self.importance is not None

    def reduced(self) -> list[Column]:
        """The short variant, or nothing."""
        if self.short is None:
            return []
        heading, cells = self.short
        return [replace(self, heading=heading, cells=cells, short=None)]


def language_column(labels: Sequence[Cell], codes: Sequence[Cell]) -> Column:
    """Code and name of each language; in a narrow terminal the code alone."""
    return Column("language", labels, justify="left", short=("", codes))


def fit(columns: Sequence[Column], width: int, *, gap: int = 2) -> list[Column]:
    """The columns that fit `width` characters, with `gap` spaces between. Columns that must stay may be wider."""
    fitted = list(columns)
    while sum(column.width + gap for column in fitted) - gap > width:
        reducible = [place for place, column in enumerate(fitted) if column.reducible]
        if not reducible:
            break
        # Columns that must stay are shortened only when no other is left.
        least = min(reducible, key=lambda place: (fitted[place].importance is None, fitted[place].importance or 0))
        fitted[least : least + 1] = fitted[least].reduced()
    return fitted


@dataclass(frozen=True)
class FittedTable:
    """Columns that fit the console that they are printed to. `row_styles` go along the rows."""

    columns: Sequence[Column]
    title: str | None = None
    row_styles: Sequence[str | None] | None = None
    gap: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title is not None:
            yield Text(self.title, style="italic")
        table = Table(box=None, pad_edge=False, padding=(0, self.gap, 0, 0))
        columns = fit(self.columns, options.max_width, gap=self.gap)
        for column in columns:
            table.add_column(column.heading, justify=column.justify, style=column.style, no_wrap=True)
        rows = list(zip(*(column.cells for column in columns), strict=True))
        for row, style in zip(rows, self.row_styles or [None] * len(rows), strict=True):
            table.add_row(*row, style=style)
        yield table


def _length(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)
