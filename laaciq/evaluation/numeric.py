"""Numeric A/A: the original against itself in another precision. What differs there is no loss, and no loss below it means anything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from pydantic import BaseModel, ConfigDict

from laaciq.corpus import Texts
from laaciq.models import LanguageModel
from laaciq.options import MeasureOptions
from laaciq.trials.measurement import measure

# Enough to see the size of rounding errors; they hardly vary between passages.
PASSAGES = 2


class NumericNoise(BaseModel):
    """Largest |ΔNLL per token| of any language, and where: the original in `precision` against the original in `other`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: str
    other: str
    largest: float
    language: str


def numeric_noise(
    original: LanguageModel,
    texts: Texts,
    options: MeasureOptions,
    *,
    advance: Callable[[int], None] = lambda languages: None,
) -> NumericNoise:
    """Two passages of every language, in the working precision and in the next wider one."""
    here = original.module.dtype
    other = torch.float32 if here.itemsize < 4 else torch.float64
    wider = replace(original, module=copy.deepcopy(original.module).to(other))
    found = {}
    for code, passages in texts.by_language.items():
        measured = measure(original, wider, passages.at(range(min(PASSAGES, len(passages)))), options)
        change = sum(measured.quantized_nll) - sum(measured.original_nll)
        found[code] = abs(change) / sum(measured.tokens)
        advance(1)
    worst = max(found, key=lambda code: found[code])
    return NumericNoise(
        precision=str(here).removeprefix("torch."),
        other=str(other).removeprefix("torch."),
        largest=found[worst],
        language=worst,
    )
