"""Which text methods are calibrated on: English alone, as people do; all languages; or a text of the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from laaciq.corpus import Split, Texts, language, read_texts
from laaciq.corpus.split import divide_calibration
from laaciq.errors import BadOption, BrokenTexts, UnknownLanguage
from laaciq.options import BUILTIN

ALL = "all"


def calibrating(asked: str, whole: Split, test: Texts, *, seed: int) -> Split:
    """`whole` is in all languages of the texts, `test` in those that are measured; a language to calibrate on need not be one of them."""
    if asked == ALL:
        return replace(whole.select(test.languages), test=test)
    try:
        return replace(whole.select([language(asked).code]), test=test)
    except UnknownLanguage:
        if not (Path(asked).exists() or asked == BUILTIN or asked.startswith("datasets:")):
            raise BadOption(
                f"--calibration {asked!r} is no language of these texts and no text: give 'eng', 'all' or a folder of texts"
            ) from None
    texts = read_texts(asked)
    tested = {text for passages in test.by_language.values() for text in passages.texts}
    for code, passages in texts.by_language.items():
        if common := tested.intersection(passages.texts):
            raise BrokenTexts(
                f"{asked} and the test text have a passage of {code} in common; calibrate on other text: {min(common)[:60]!r}"
            )
    return divide_calibration(texts, test, seed=seed)
