"""Progress: remaining times that follow from what is done, plain lines in a log, bars in a terminal."""

from __future__ import annotations

import io
import sys
from threading import Event

import pytest

from laaciq.engine.progress import Progress, Stage, TerminalProgress, default_progress, duration
from laaciq.engine.terminal import Terminal


class Clock:
    """Seconds that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(file: io.StringIO) -> list[str]:
    return file.getvalue().splitlines()


def test_remaining_time_follows_the_pace_and_runs_down_within_a_step():
    clock = Clock()
    stage = Stage("rounding", 8.0, clock=clock)
    assert stage.remaining is None
    clock.now = 10
    stage.advance(2)  # a fourth in 10 s: 40 s in all
    assert stage.remaining == pytest.approx(30)
    clock.now = 25  # 15 s into the next step
    assert stage.remaining == pytest.approx(15)
    clock.now = 60  # longer than the pace had it: how much longer is not known
    assert stage.remaining is None


def test_an_expected_duration_holds_until_there_is_a_pace():
    clock = Clock()
    stage = Stage("tuning", 100, expected_seconds=60, clock=clock)
    assert stage.remaining == 60
    clock.now = 4
    stage.advance(1)
    assert stage.remaining == pytest.approx(56)
    clock.now = 20
    stage.advance(9)
    assert stage.remaining == pytest.approx(180)
    assert stage.times == "20 s, about 3 min left"


@pytest.mark.parametrize(
    ("total", "done", "shown"),
    [(64, 23, "23 of 64"), (2.5, 1, "40%"), (33_000_000, 3_300_000, "10%"), (0, 0, "0 of 0")],
)
def test_counts_are_numbers_where_a_person_would_count(total, done, shown):
    stage = Stage("", total)
    stage.advance(done)
    assert stage.counts == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0 s"), (89, "89 s"), (300, "5 min"), (7200, "2.0 h")])
def test_durations_are_in_the_unit_that_a_person_would_name(seconds, shown):
    assert duration(seconds) == shown


def test_a_log_has_a_line_at_the_beginning_and_at_the_end_and_none_of_a_bar():
    file = io.StringIO()
    # Colours that are forced on make no terminal of a log.
    progress = TerminalProgress(Terminal(file=file, force_terminal=True, no_color=True))
    with progress.stage("measuring", 3, expected_seconds=120) as advance:
        progress.say("A sentence [as it is].")
        advance(3)
    assert lines_of(file) == ["measuring: 0 of 3, about 2 min", "A sentence [as it is].", "measuring: done in 0 s"]


def test_a_log_has_lines_while_a_step_takes_long():
    """The step waits until it has been reported twice."""
    file, twice = io.StringIO(), Event()

    class Watched(TerminalProgress):
        def say(self, text: str) -> None:
            super().say(text)
            if file.getvalue().count("1 of 4, ") == 2:
                twice.set()

    progress = Watched(Terminal(file=file), line_seconds=0.01)
    with progress.stage("rounding", 4, working=lambda: "worker 1: eng; worker 2: swa") as advance:
        advance(1)
        assert twice.wait(30)
    assert lines_of(file)[1].startswith("rounding: 1 of 4, 0 s")
    assert lines_of(file)[1].endswith("(worker 1: eng; worker 2: swa)")


def test_a_stage_with_nothing_to_do_is_not_shown():
    file = io.StringIO()
    with TerminalProgress(Terminal(file=file)).stage("measuring", 0) as advance:
        advance(0)
    assert not lines_of(file)


def test_a_stage_that_fails_is_not_called_done():
    file = io.StringIO()
    with pytest.raises(ValueError), TerminalProgress(Terminal(file=file)).stage("tuning", 2):
        raise ValueError
    assert lines_of(file) == ["tuning: 0 of 2"]


def test_a_terminal_shows_bars_one_below_the_other_and_leaves_none():
    file = Screen()
    progress = TerminalProgress(Terminal(file=file, force_terminal=True, width=100))
    with progress.stage("planning", 2) as outer:
        outer(1)
        with progress.stage("rounding", 84, working=lambda: "worker 1: eng") as inner:
            inner(21)
            assert progress._display is not None
            progress._display.refresh()
    shown = file.getvalue()
    assert "planning" in shown
    assert "worker 1: eng" in shown
    assert "21 of 84, 0 s" in shown
    assert progress._display is None


def test_python_functions_are_silent_unless_a_person_watches(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(default_progress()) is Progress
    monkeypatch.setattr(sys, "stderr", Screen())
    assert type(default_progress()) is TerminalProgress
    with Progress().stage("anything", 1.5, expected_seconds=1) as advance:
        advance(0.5)
