"""Whatever is printed, the terminal acts on nothing but our own styles."""

from __future__ import annotations

import io

import pytest
from rich.table import Table
from rich.text import Text

from laaciq.engine.escaping import printable
from laaciq.engine.progress import TerminalProgress
from laaciq.engine.terminal import Terminal
from tests.payloads import PAYLOADS, assert_inert


def printed(*objects: object, **options: object) -> str:
    terminal = Terminal(file=io.StringIO(), width=10_000, **options)
    for renderable in objects:
        terminal.print(renderable)
    return terminal.file.getvalue()


def table(name: str) -> Table:
    made = Table(name, "short", title=name, box=None)
    made.add_row(name, Text(f"{name[0]}\x1b{name[1:]}", style="red"))
    return made


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_names_are_shown_in_one_line(payload):
    assert printed(payload) == f"{printable(payload)}\n"
    # rich leaves the bell, backspace and carriage return out of a `Text`.
    assert_inert(shown := printed(Text(f"a {payload}", style="bold")))
    assert shown.count("\n") == 1
    title, heads, row, *_ = printed(table(payload)).splitlines()
    assert title.count(printable(payload)) == heads.count(printable(payload)) == row.count(printable(payload)) == 1
    assert_inert(printed(table(payload)))


def test_styles_of_ours_stay():
    shown = printed(Text.assemble(("laaciq:", "bold red"), " a\x1b[32mb"), force_terminal=True, color_system="standard")
    assert shown == "\x1b[1;31mlaaciq:\x1b[0m a\\x1b[32mb\n"


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_progress(payload):
    file = io.StringIO()
    progress = TerminalProgress(Terminal(file=file, width=10_000))
    progress.say(payload)
    with progress.stage(payload, 1.0) as advance:
        advance(1)
    assert_inert(file.getvalue())
    assert len(file.getvalue().splitlines()) == 3


def test_bars_take_no_markup():
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    file = Screen()
    progress = TerminalProgress(Terminal(file=file, width=200, force_terminal=True, color_system=None))
    with progress.stage(PAYLOADS["markup"] + PAYLOADS["hyperlink"], 1.0) as advance:
        advance(1)
    assert PAYLOADS["markup"] in file.getvalue()
    assert "\x1b]8" not in file.getvalue()
