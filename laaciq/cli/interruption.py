"""Ctrl-C and SIGTERM: the command ends with one line that says how to continue."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from laaciq.engine.escaping import shell_command

# Commands that write finished parts to a folder, and go on from there when they are run again.
RESUMABLE = frozenset(
    {
        *("run", "plan", "quantize", "evaluate", "compare", "profile", "sensitivity", "sweep", "gateway", "mixture"),
        *("intervene", "lab run"),
    }
)


class Interrupted(BaseException):
    """An interruption by a signal. Not a KeyboardInterrupt, on which typer ends the process silently."""

    def __init__(self, number: int) -> None:
        self.status = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Context manager: SIGINT and SIGTERM raise `Interrupted`. A second signal ends the process at once."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupt(number: int, frame: FrameType | None) -> None:
        for handled in before:
            signal.signal(handled, signal.SIG_DFL)
        raise Interrupted(number)

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruption_message(arguments: Sequence[str]) -> str:
    """One line that says how to resume; `arguments` are those of the process, `sys.argv`."""
    program, *words = arguments
    typed = [word for word in words if not word.startswith("-")]
    if not {" ".join(typed[:1]), " ".join(typed[:2])} & RESUMABLE:
        return "Interrupted."
    return f"Interrupted. Continue with: {shell_command([*_program(program), *words])}"


def _program(program: str) -> list[str]:
    if Path(program).name == "__main__.py":
        return [sys.executable, "-m", "laaciq"]
    name = Path(program).name
    return [name if shutil.which(name) == program else program]
