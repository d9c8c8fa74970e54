"""Ctrl-C and SIGTERM: the command ends with one line that says how to continue."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

# Commands that write finished parts to a folder, and go on from there when they are run again.
RESUMABLE = frozenset(
    {"run", "plan", "quantize", "evaluate", "compare", "profile", "sensitivity", "sweep", "gateway", "mixture"}
)


class Interrupted(BaseException):
    """By a signal. No KeyboardInterrupt: typer ends the process on that by itself, without a word."""

    def __init__(self, number: int) -> None:
        self.status = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, SIGINT and SIGTERM raise `Interrupted`. A second signal ends the process at once."""
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
    """`arguments` are those of the process, `sys.argv`."""
    program, *words = arguments
    command = next((word for word in words if not word.startswith("-")), None)
    if command not in RESUMABLE:
        return "Interrupted."
    return f"Interrupted. Continue with: {shlex.join([*_program(program), *words])}"


def _program(program: str) -> list[str]:
    if Path(program).name == "__main__.py":
        return [sys.executable, "-m", "laaciq"]
    name = Path(program).name
    return [name if shutil.which(name) == program else program]
