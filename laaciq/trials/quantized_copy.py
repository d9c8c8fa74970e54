"""A copy of the original that holds the dequantized weights of one candidate after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import torch

from laaciq.models import LanguageModel
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.kept import to_16bit
from laaciq.quantization.plan import TensorPlan


class QuantizedCopy:
    """A copy that is made on first use. `holding` names its present weights, so that they are not written twice."""

    def __init__(self, original: LanguageModel) -> None:
        self.original = original
        self._model: LanguageModel | None = None
        self._holding: Hashable = None

    @property
    def model(self) -> LanguageModel:
        if self._model is None:
            self._model = copy_of(self.original)
        return self._model

    def hold(self, weights: Hashable, put_on: Callable[[LanguageModel], object]) -> LanguageModel:
        """The copy with the named `weights`. `put_on` writes them unless the copy has them already."""
        if self._holding != weights:
            self._holding = None  # while it is being written, and if that fails
            put_on(self.model)
            self._holding = weights
        return self.model


def copy_of(original: LanguageModel) -> LanguageModel:
    """A copy of the model that does not share weights with it."""
    return replace(original, module=copy.deepcopy(original.module))


@torch.no_grad()
def put_layers(
    original: LanguageModel,
    target: LanguageModel,
    layers: Iterable[tuple[TensorPlan, QuantizedMatrix]],
    *,
    others: Mapping[str, torch.Tensor] = MappingProxyType({}),
    table: int | None = None,
) -> None:
    """Give `target`, a copy of `original`, the dequantized weights of these layers, with the shared scales or those of a table. `others`
    are tuned parameters, by name.
    """
    matrices = target.anatomy.matrices
    stored = dict(original.module.named_parameters())
    for name, parameter in target.module.named_parameters():
        parameter.copy_(to_16bit(others.get(name, stored[name])))
    for tensor, quantized in layers:
        matrices[tensor.name].copy_(quantized.dequantize(tensor, table))
