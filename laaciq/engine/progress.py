"""Progress of long work. The library is silent unless it is given a reporter; the command line gives it a bar on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console


class Progress:
    """Says nothing."""

    def say(self, text: str) -> None:
        pass

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A piece of work in `total` steps; yields a function that is told how many more are done."""
        yield lambda steps: None


class TerminalProgress(Progress):
    """Sentences and bars on standard error, so that standard output stays a program's."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False)

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        columns = [bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn()]
        columns += [bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn()]
        # Into a file even a bar that is never drawn would leave an empty line.
        shown = self.console.is_terminal
        with bars.Progress(*columns, console=self.console, transient=True, disable=not shown) as display:
            task = display.add_task(title, total=total)
            yield lambda steps: display.advance(task, steps)
