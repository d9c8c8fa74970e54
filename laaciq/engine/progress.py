"""Progress of long work: bars in a terminal, plain lines in a log. Python functions without a `Progress` print nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from threading import Event, Thread

from rich import progress as bars
from rich.table import Column
from rich.text import Text

from laaciq.engine.terminal import Terminal

# Seconds between two lines of a stage where there is no terminal.
LINE_SECONDS = 15.0
# Up to this share of a stage, an expected duration says more about its end than the few steps that are done.
_EARLY = 0.05
# Totals up to this are shown as counts, larger ones and fractions in percent.
_COUNTED = 10_000

Advance = Callable[[float], None]


class Progress:
    """Progress that is not shown; the base class of those that are."""

    def say(self, text: str) -> None:
        """Print a sentence for the user."""

    @contextmanager
    def stage(
        self,
        title: str,
        total: float,
        *,
        expected_seconds: float | None = None,
        working: Callable[[], str] = lambda: "",
    ) -> Iterator[Advance]:
        """A stage of `total` units of any kind. Yields a function to call with the number of units just done. With `expected_seconds`, the
        remaining time is shown before the first unit is done. `working` says what is being done now, if several do it.
        """
        stage = Stage(title, total, expected_seconds, working)
        # Nothing to do, nothing to show.
        with self.showing(stage) if total > 0 else nullcontext():
            yield stage.advance

    def showing(self, stage: Stage) -> AbstractContextManager[None]:
        """Shows a stage while it lasts."""
        return nullcontext()


@dataclass
class Stage:
    """How far a stage is, and how long it will still take. `clock` is in seconds."""

    title: str
    total: float
    expected_seconds: float | None = None
    working: Callable[[], str] = lambda: ""
    clock: Callable[[], float] = time.monotonic
    done: float = field(default=0.0, init=False)
    began: float = field(init=False)
    advanced: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.advanced = self.clock()

    def advance(self, units: float) -> None:
        self.done += units
        self.advanced = self.clock()

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total > 0 else 0.0

    @property
    def elapsed(self) -> float:
        return self.clock() - self.began

    @property
    def remaining(self) -> float | None:
        """Remaining seconds: from the pace so far or, near the beginning, from the expected duration. None if neither is known, or if the
        work has already taken longer than expected.
        """
        whole = self.expected_seconds if self.share <= _EARLY else None
        if whole is None and self.share:
            whole = (self.advanced - self.began) / self.share
        return whole - self.elapsed if whole is not None and whole > self.elapsed else None

    @property
    def counts(self) -> str:
        if self.total > _COUNTED or self.total != int(self.total):
            return f"{self.share:.0%}"
        return f"{self.done:.0f} of {self.total:.0f}"

    @property
    def times(self) -> str:
        left = "" if self.remaining is None else f", about {duration(self.remaining)} left"
        return f"{duration(self.elapsed)}{left}"


class TerminalProgress(Progress):
    """Messages and progress on standard error; standard output is for results."""

    def __init__(self, console: Terminal | None = None, *, line_seconds: float = LINE_SECONDS) -> None:
        self.console = console or Terminal(stderr=True)
        self.line_seconds = line_seconds
        self._display: bars.Progress | None = None

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def showing(self, stage: Stage) -> AbstractContextManager[None]:
        return self._bar(stage) if _draws_bars(self.console) else self._lines(stage)

    @contextmanager
    def _bar(self, stage: Stage) -> Iterator[None]:
        """A stage within another is a second bar below it, because a terminal has only one live display."""
        outermost = self._display is None
        display = self._display or bars.Progress(*_COLUMNS, console=self.console, transient=True)
        self._display = display
        if outermost:
            display.start()
        task = display.add_task(stage.title, total=max(stage.total, 1e-9), stage=stage)
        try:
            yield
        finally:
            display.remove_task(task)
            if outermost:
                display.stop()
                self._display = None

    @contextmanager
    def _lines(self, stage: Stage) -> Iterator[None]:
        """One line at the beginning, one every `line_seconds`, and one at the end."""
        expected = stage.expected_seconds
        self.say(f"{stage.title}: {stage.counts}" + (f", about {duration(expected)}" if expected else ""))
        ended = Event()

        def repeat() -> None:
            while not ended.wait(self.line_seconds):
                now = stage.working()
                self.say(f"{stage.title}: {stage.counts}, {stage.times}{now and f' ({now})'}")

        repeating = Thread(target=repeat, daemon=True)
        repeating.start()
        try:
            yield
        finally:
            ended.set()
            repeating.join()
        self.say(f"{stage.title}: done in {duration(stage.elapsed)}")


def default_progress() -> Progress:
    """The default progress of Python functions: shown in a terminal or a notebook, silent in a script."""
    return TerminalProgress() if sys.stderr.isatty() or Terminal(stderr=True).is_jupyter else Progress()


def duration(seconds: float) -> str:
    """A duration in a readable unit: 40 s, 2.5 min, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60, 1 if seconds < 600 else None):g} min"
    return f"{seconds / 3600:.1f} h"


def _draws_bars(console: Terminal) -> bool:
    """False for a log, even if colours are forced on, and for a notebook without ipywidgets."""
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal


class _Bar(bars.BarColumn):
    """Follows the stage, so that steps are counted in one place."""

    def render(self, task: bars.Task) -> bars.ProgressBar:
        task.completed = task.fields["stage"].share * (task.total or 1.0)
        return super().render(task)


class _Numbers(bars.ProgressColumn):
    def render(self, task: bars.Task) -> Text:
        stage: Stage = task.fields["stage"]
        return Text(f"{stage.counts}, {stage.times}")


class _Working(bars.ProgressColumn):
    """On one line, as far as there is room."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis"))

    def render(self, task: bars.Task) -> Text:
        return Text(task.fields["stage"].working())


_COLUMNS = (bars.TextColumn("{task.description}", markup=False), _Bar(), _Numbers(), _Working())
