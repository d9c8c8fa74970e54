"""Quantized twins of a model: simulated weights, exactly what checkpoints mean, for each language the ones that serve it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import torch

from laaciq.models import LanguageModel
from laaciq.quantization.checkpoint import apply_checkpoint
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.kept import to_16bit
from laaciq.quantization.plan import PlanSet, TensorPlan


@dataclass
class Twins:
    """One copy of `original`, which takes on the weights of a language's checkpoint and table when asked. `root` holds the checkpoints."""

    original: LanguageModel
    plans: PlanSet
    root: Path
    _copy: LanguageModel | None = None
    _wears: tuple[str, int | None] | None = field(default=None)

    def for_language(self, language: str) -> LanguageModel:
        """The twin as it serves the language; the next call changes it."""
        name = self.plans.serving(language)
        wanted = (name, self.plans.plans[name].table_of(language))
        if self._copy is None:
            self._copy = copy_of(self.original)
        if self._wears != wanted:
            self._wears = None
            apply_checkpoint(self._copy, self.plans.folders(self.root)[name], table=wanted[1])
            self._wears = wanted
        return self._copy


@torch.no_grad()
def simulate(
    original: LanguageModel,
    twin: LanguageModel,
    layers: Iterable[tuple[TensorPlan, QuantizedMatrix]],
    *,
    others: Mapping[str, torch.Tensor] = MappingProxyType({}),
    table: int | None = None,
) -> None:
    """Give the twin the weights that a checkpoint of these layers would mean, with the shared scales or a table's, without writing one.
    `others` are tuned parameters, by name."""
    targets = twin.anatomy.matrices
    stored = dict(original.module.named_parameters())
    for name, parameter in twin.module.named_parameters():
        parameter.copy_(to_16bit(others.get(name, stored[name])))
    for tensor, quantized in layers:
        targets[tensor.name].copy_(quantized.dequantize(tensor, table))


def copy_of(original: LanguageModel) -> LanguageModel:
    """A copy with weights of its own."""
    return replace(original, module=copy.deepcopy(original.module))
