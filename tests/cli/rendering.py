"""Tables as they look in a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType


def rendered(table: RenderableType, width: int) -> list[str]:
    console = Console(width=width, file=StringIO())
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def assert_legible(table: RenderableType, *cells: str) -> None:
    """Narrow or wide, each of the cells is there in full, and nothing is cut."""
    for width in (60, 80):
        lines = rendered(table, width)
        assert max(map(len, lines)) <= width, lines
        words = " ".join(" ".join(lines).split())
        assert all(cell in words for cell in cells), (width, cells, words)
        assert "…" not in words
