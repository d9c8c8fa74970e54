"""Errors that the user can fix. Every one is a `LaaciqError` whose message says what was wrong and what to do.

The command line prints the message without a traceback and exits with status 2.
"""


class LaaciqError(Exception):
    """Base of all errors that the user can fix."""


class UnknownLanguage(LaaciqError):
    """A name or code that is not a language, or a language that the texts do not have."""


class BrokenTexts(LaaciqError):
    """Texts that are missing, empty, not UTF-8, or not aligned although they should be."""


class MissingExtra(LaaciqError):
    """An optional library that is not installed. The message ends in `install_hint`."""


class BrokenModel(LaaciqError):
    """A model that is missing, half-written, of an unknown kind, or holds NaN or infinite weights."""


class BadOption(LaaciqError):
    """An option out of range, an unknown method, or options that contradict each other."""


class OutputConflict(LaaciqError):
    """The output is in use: it holds finished work, which is replaced only on request, or files of others."""


class WriteFailed(LaaciqError):
    """The output could not be written: the disk is full, read-only or broken, or a quota or a limit is reached."""


class TooLittleMemory(LaaciqError):
    """The work would not fit, or did not fit, into memory."""


class WorkerDied(LaaciqError):
    """A task that workers do not survive."""


def install_hint(extra: str) -> str:
    """How to install an optional library. Extras are installed from a clone, because the package is on no index."""
    return f"run pip install '.[{extra}]' in your clone of laaciq"
