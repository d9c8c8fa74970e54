"""Numeric A/A: the original against itself in another precision. What differs there is no loss, and no loss below it means anything."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from laaciq.corpus import Texts
from laaciq.models import LanguageModel
from laaciq.strict import StrictModel
from laaciq.trials.candidate import LoadedModel
from laaciq.trials.session import Session

# Enough to see the size of rounding errors; they hardly vary between passages.
PASSAGES = 2


class NumericNoise(StrictModel):
    """Largest |ΔNLL per token| of any language, and where: the original in `precision` against the original in `other`."""

    precision: str
    other: str
    largest: float
    language: str


def numeric_noise(session: Session, texts: Texts) -> NumericNoise:
    """The first two passages of every language, in the working precision and in the next wider one."""
    precision = session.original.module.dtype
    other = torch.float32 if precision.itemsize < 4 else torch.float64
    few = replace(
        texts,
        by_language={code: p.at(range(min(PASSAGES, len(p)))) for code, p in texts.by_language.items()},
    )
    candidate = LoadedModel("numeric check", str(other), _converted(session.original, other))
    (measured,) = session.measure([candidate], few, part="numeric")
    change = {code: abs(m.loss.sum()) / sum(m.tokens) for code, m in measured.items()}
    largest = max(change, key=lambda code: change[code])
    return NumericNoise(
        precision=str(precision).removeprefix("torch."),
        other=str(other).removeprefix("torch."),
        largest=float(change[largest]),
        language=largest,
    )


def _converted(model: LanguageModel, dtype: torch.dtype) -> LanguageModel:
    return replace(model, module=copy.deepcopy(model.module).to(dtype))
