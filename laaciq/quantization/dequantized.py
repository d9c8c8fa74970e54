"""Our checkpoints as plain models with dequantized weights, for commands that read weights."""

from __future__ import annotations

from typing import Any

import torch

from laaciq.errors import BrokenModel
from laaciq.models import LanguageModel, ModelFolder, load
from laaciq.models.foreign.parts import Parts
from laaciq.quantization.checkpoint import read_section
from laaciq.quantization.checkpoint_checks import check_parts, layer_name
from laaciq.quantization.plan import Plan
from laaciq.quantization.stored import part_shapes, read_stored


class _OurFormat:
    """How our checkpoints store a quantized layer; a `ForeignFormat`."""

    quantized_parts: tuple[str, ...] = ("codes",)
    notes: tuple[str, ...] = ()

    def __init__(self, plan: Plan) -> None:
        self._planned = {layer_name(tensor): tensor for tensor in plan.tensors if tensor.quantized}
        names = {part for tensor in self._planned.values() for part in part_shapes(tensor)}
        self.shared_parts = tuple(sorted(names - set(self.quantized_parts)))
        self.claims_layers = bool(self._planned)

    def weights(self, parts: Parts) -> torch.Tensor:
        """The dequantized weights, with the shared scales."""
        if parts.layer not in self._planned:
            raise BrokenModel(f"the plan does not list {parts.layer}, which has codes; quantize again")
        tensor = self._planned[parts.layer]
        stored = {name: parts.take(name, shape) for name, (shape, _) in part_shapes(tensor).items()}
        check_parts(stored, tensor)
        return read_stored(stored, tensor).dequantize(tensor)


def load_dequantized(folder: ModelFolder, **how: Any) -> LanguageModel:
    """Load any model with plain weights: our checkpoints dequantized, others as `load` does. `how` are keyword arguments of `load`."""
    form = _OurFormat(read_section(folder.path).plan) if folder.is_ours else None
    return load(folder, form=form, **how)
