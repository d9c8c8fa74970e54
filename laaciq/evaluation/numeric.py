"""Numeric noise: the original against itself in another precision. A loss below this difference means nothing."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch

from laaciq.corpus import Texts
from laaciq.models import LanguageModel
from laaciq.models.offloading import BlockTensors, OffloadedBlocks
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
    converted = _converted(session.original, other, packed=session.placement.packed)
    candidate = LoadedModel("numeric check", str(other), converted)
    (measured,) = session.measure([candidate], few, part="numeric")
    change = {code: abs(m.loss.sum()) / sum(m.tokens) for code, m in measured.items()}
    largest = max(change, key=lambda code: change[code])
    return NumericNoise(
        precision=str(precision).removeprefix("torch."),
        other=str(other).removeprefix("torch."),
        largest=float(change[largest]),
        language=largest,
    )


def _converted(model: LanguageModel, dtype: torch.dtype, *, packed: bool) -> LanguageModel:
    """The model with wider numbers. Where there is no room for a second one, a block is converted when it runs."""
    if not packed:
        return replace(model, module=copy.deepcopy(model.module).to(dtype))
    converted = model.without_block_weights()
    converted.module.to(dtype)
    blocks = dict(enumerate(converted.blocks))
    return replace(converted, offloaded=OffloadedBlocks(blocks, _ConvertedBlocks(model, dtype), model.device))


@dataclass(frozen=True)
class _ConvertedBlocks:
    """Weights of the model's blocks as numbers of another type; a `BlockSource`."""

    model: LanguageModel
    dtype: torch.dtype

    def fetch(self, index: int) -> BlockTensors:
        tensors = self.model.block_tensors(index)
        return {name: value.to(self.dtype) if value.is_floating_point() else value for name, value in tensors.items()}
