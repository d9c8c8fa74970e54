"""`ratings`: the answers of raters to the sheets of `rating_sheet`, as preferences by language."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from laaciq.commands.settings import spells_out
from laaciq.engine.csv_input import read_rows
from laaciq.engine.input_files import Refusal
from laaciq.engine.json_input import read_record
from laaciq.errors import BadOption
from laaciq.evaluation.ratings import Choice, RatingKey, Ratings, preferences
from laaciq.options import RatingsOptions
from laaciq.options.keywords import RatingsKeywords
from laaciq.report.rating_form import COLUMNS

_ANSWERS = Refusal(BadOption, "give the CSV file that the form saved, or the sheet with its column 'choice' filled in")
_KEY = Refusal(BadOption, "give the key.json that 'laaciq rating-sheet' wrote with these sheets")
_CHOICES: dict[str, Choice] = {"a": "A", "b": "B", "tie": "tie"}


@spells_out(RatingsOptions, RatingsKeywords)
def ratings(files: Sequence[str | Path], *, key: str | Path, **options: Unpack[RatingsKeywords]) -> Ratings:
    """What people prefer, by language and overall. Every file holds the answers of one rater to the sheets of one or more languages; `key`
    is the key.json that was written with the sheets.
    """
    chosen = RatingsOptions.of(files=tuple(map(str, files)), key=key, **options)
    if twice := [name for name in chosen.files if chosen.files.count(name) > 1]:
        raise BadOption(f"{twice[0]} is given twice: give one file per rater")
    known = read_record(Path(chosen.key), RatingKey, _KEY)
    return preferences(known, [_read(Path(name), known) for name in chosen.files])


def _read(path: Path, key: RatingKey) -> dict[str, Choice]:
    """The answers of one rater, to all pairs of every language that the file has."""
    languages = {entry.item: entry.language for entry in key.pairs}
    answers: dict[str, Choice] = {}
    unanswered: list[str] = []
    for number, row in read_rows(path, COLUMNS, _ANSWERS):
        item, choice = row["item"].strip(), row["choice"].strip()
        if item not in languages:
            raise _ANSWERS.of(path, f"has the item {item[:40]!r} in row {number}, which is not in the key")
        if item in answers or item in unanswered:
            raise _ANSWERS.of(path, f"has the item {item!r} twice")
        if not choice:
            unanswered.append(item)
        elif choice.lower() in _CHOICES:
            answers[item] = _CHOICES[choice.lower()]
        else:
            raise _ANSWERS.of(path, f"has the choice {choice[:40]!r} in row {number}; it can be A, B or tie")
    seen = {languages[item] for item in (*answers, *unanswered)}
    if not seen:
        raise _ANSWERS.of(path, "has no answers")
    missing = [entry.item for entry in key.pairs if entry.language in seen and entry.item not in answers]
    if missing:
        whole = sum(entry.language in seen for entry in key.pairs)
        raise _ANSWERS.of(path, f"has no answer to {len(missing)} of {whole} pairs, the first is {missing[0]}")
    return answers
