"""What Python and other libraries print to standard error: warnings, log records, tracebacks. They may quote names that a stranger chose."""

from __future__ import annotations

import logging
import traceback
import warnings
from typing import TextIO

from laaciq.engine.terminal import Terminal


def make_messages_inert() -> None:
    """From now on, in this process."""
    warnings.showwarning = _show_warning
    # Prints the records of libraries that set up no logging.
    logging.lastResort = _Records(logging.WARNING)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    _print(f"{category.__name__}: {message}")


def print_traceback(error: BaseException) -> None:
    """Of an error that nobody expected."""
    _print(*"".join(traceback.format_exception(error)).splitlines())


class _Records(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _print(*self.format(record).splitlines())


def _print(*lines: str) -> None:
    terminal = Terminal(stderr=True)
    for line in lines:
        terminal.print(line, soft_wrap=True)
