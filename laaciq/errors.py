"""What a user can do something about: every such error is a `LaaciqError` whose message says what was wrong and what to do.

The command line prints the message without a traceback and exits with status 2.
"""


class LaaciqError(Exception):
    """Base of all errors that the user can mend."""


class UnknownLanguage(LaaciqError):
    """A name or code that is no language, or a language that the texts do not have."""


class BrokenTexts(LaaciqError):
    """Texts that are missing, empty, not UTF-8, or not aligned where they should be."""


class MissingExtra(LaaciqError):
    """An optional library is needed and not installed."""
