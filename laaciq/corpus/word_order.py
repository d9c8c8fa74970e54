"""A multiple-choice task from plain text in any language: which ending has its words in the right order?"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from laaciq.corpus.texts import Passages
from laaciq.errors import BrokenTexts

CHOICES = 4
_VIRAMA = 9
# Letters that are moved together where a script puts no space between words.
_RUN = 3


@dataclass(frozen=True)
class Question:
    """The first half of a passage, and candidate endings; the original one is at `answer`."""

    start: str
    endings: tuple[str, ...]
    answer: int


def questions(passages: Passages) -> list[Question]:
    """One question per passage. A wrong ending swaps two neighbouring words of the right one, an error that small models notice. All
    endings have the same letters, so length favours none.
    """
    made = []
    for place, text in enumerate(passages.texts):
        start, ending = cut(text)
        wrong = wrong_endings(ending)
        if len(wrong) < CHOICES - 1:
            raise BrokenTexts(
                f"{passages.language.code} has a passage that is too short for a question: {text[:60]!r}; merge it with another"
            )
        answer = place % CHOICES
        made.append(Question(start, (*wrong[:answer], ending, *wrong[answer:]), answer))
    return made


def cut(text: str) -> tuple[str, str]:
    """The two halves of a text, cut at the space nearest the middle or, in scripts without spaces, between two letters."""
    middle = len(text) // 2
    spaces = [place for place, letter in enumerate(text) if letter.isspace()]
    near = min(spaces, key=lambda place: abs(place - middle), default=None)
    if near is not None and abs(near - middle) <= len(text) // 4:
        return text[:near], text[near:]
    while middle < len(text) and _joined(text[middle - 1], text[middle]):
        middle += 1
    return text[:middle], text[middle:]


def wrong_endings(ending: str) -> list[str]:
    """Up to three different wrong endings, with the swaps spread over the ending."""
    # Pieces at even places, what stands between them at odd ones.
    parts = re.split(r"(\s+)", ending)
    if len(parts) < 2 * CHOICES + 1:
        parts = _runs(ending)
    # An ending may begin with a space, and so with an empty piece.
    places = [p for p in range(0, len(parts) - 2, 2) if parts[p] and parts[p] != parts[p + 2]]
    chosen = {places[number * len(places) // (CHOICES - 1)] for number in range(CHOICES - 1)} if places else set()
    return ["".join([*parts[:p], parts[p + 2], parts[p + 1], parts[p], *parts[p + 3 :]]) for p in sorted(chosen)]


def _runs(text: str) -> list[str]:
    """Runs of letters that join to the text; a leading space stays at the front."""
    letters: list[str] = []
    bare = text.lstrip()
    for letter in bare:
        if letters and _joined(letters[-1][-1], letter):
            letters[-1] += letter
        else:
            letters.append(letter)
    runs = ["".join(letters[place : place + _RUN]) for place in range(0, len(letters), _RUN)]
    return ["", text.removesuffix(bare), *(part for run in runs for part in (run, ""))][:-1]


def _joined(before: str, after: str) -> bool:
    """Marks and joiners belong to the letter before them, and a virama ties the next one to it."""
    return unicodedata.category(after) in ("Mn", "Mc", "Me", "Cf") or unicodedata.combining(before) == _VIRAMA
