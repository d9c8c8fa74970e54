"""The calibration text of `laaciq compare`: one language, all languages, or other texts of the user."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from laaciq.corpus import Split, Texts, language, read_texts
from laaciq.corpus.named_sets import is_named_set
from laaciq.corpus.split import divide_calibration
from laaciq.engine.input_files import is_there
from laaciq.errors import BadOption, BrokenTexts, UnknownLanguage
from laaciq.options import BUILTIN

ALL = "all"


def calibration_split(choice: str, whole: Split, test: Texts, *, seed: int) -> Split:
    """Calibration and validation text for the option `--calibration`, together with the given `test` text.

    `whole` holds all languages of the texts, `test` those that are measured. The calibration language need not be measured.
    """
    if choice == ALL:
        return replace(whole.select(test.languages), test=test)
    named = choice == BUILTIN or choice.startswith("datasets:") or is_named_set(choice)
    try:
        if not named:
            return replace(whole.select([language(choice).code]), test=test)
    except UnknownLanguage:
        if not is_there(Path(choice)):
            raise BadOption(
                f"--calibration {choice!r} is neither a language of these texts nor a text source: give 'eng', 'all' or a folder of texts"
            ) from None
    texts = read_texts(choice)
    tested = {text for passages in test.by_language.values() for text in passages.texts}
    for code, passages in texts.by_language.items():
        if common := tested.intersection(passages.texts):
            raise BrokenTexts(
                f"{choice} and the test text share a passage in {code}: {min(common)[:60]!r}; calibrate on other text"
            )
    return divide_calibration(texts, test, seed=seed)
