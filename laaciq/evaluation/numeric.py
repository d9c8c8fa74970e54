"""Numeric noise: the original against itself in another precision. A loss below this difference means nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from laaciq.corpus import Texts
from laaciq.models import LanguageModel
from laaciq.strict import StrictModel
from laaciq.trials.candidate import LoadedModel
from laaciq.trials.session import Session

# Enough: rounding errors hardly vary between passages.
PASSAGES = 2


class NumericNoise(StrictModel):
    """Largest |ΔNLL per token| of any language, and which: the original in `precision` against the original in `other`."""

    precision: str
    other: str
    largest: float
    language: str


def numeric_noise(session: Session, texts: Texts) -> NumericNoise:
    """The noise on the first two passages of every language, between the working precision and the next wider one."""
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
