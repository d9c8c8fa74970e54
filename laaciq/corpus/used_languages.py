"""Which languages of the texts a command uses if none are named."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from laaciq import reference
from laaciq.options import BUILTIN


def used_languages(named: Iterable[str] | None, texts: str | Path, model: Path) -> list[str] | None:
    """`named`, if given; else all, which is None. On the reference model the built-in texts are used in the languages that it was trained on
    and in the four that were left out on purpose: in all others it would show the same as in those.
    """
    if named is not None:
        return list(named)
    return reference.languages() if str(texts) == BUILTIN and model == reference.path() else None
