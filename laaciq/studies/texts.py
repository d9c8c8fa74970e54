"""Texts for studies: enough documents for an interval, and shortened passages for many passes."""

from __future__ import annotations

from dataclasses import replace

from laaciq.corpus import Texts
from laaciq.engine.progress import Progress
from laaciq.errors import BrokenTexts
from laaciq.evaluation.verdict import rough_intervals
from laaciq.models import LanguageModel
from laaciq.scoring.sequences import first_tokens


def require_documents(texts: Texts, part: str, progress: Progress) -> None:
    """Raise an error unless every language has at least two documents: one has no variance. Warn if there are few."""
    counts = {code: len(set(passages.documents)) for code, passages in texts.by_language.items()}
    for code, documents in counts.items():
        if documents < 2:
            raise BrokenTexts(
                f"{code} has fewer than two documents in the {part} part, and an interval needs two: give more text"
            )
    if rough := rough_intervals(min(counts.values(), default=0)):
        progress.say(rough)


def shortened(model: LanguageModel, texts: Texts, *, passages: int, tokens: int) -> Texts:
    """At most this many passages per language, each of at most this many tokens, so that the cost of a pass is known."""
    few = texts.spread(passages)
    return replace(
        few,
        by_language={
            code: replace(short, texts=tuple(first_tokens(model.tokenizer, text, tokens) for text in short.texts))
            for code, short in few.by_language.items()
        },
    )
