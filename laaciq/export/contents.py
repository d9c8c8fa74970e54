"""What a model's folder holds, tensor by tensor, without building the model: the codes of a checkpoint of ours, the weights of any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from laaciq.errors import BrokenModel
from laaciq.models import ModelFolder, stream_tensors
from laaciq.planning import TensorPlan
from laaciq.quantization import is_checkpoint, read_plan
from laaciq.quantization.checkpoint import check_parts, layer_name
from laaciq.quantization.grid import Grid, QuantizedMatrix
from laaciq.quantization.stored import part_shapes, read_stored


@dataclass(frozen=True)
class Coded:
    """A quantized matrix, with its plan."""

    quantized: QuantizedMatrix
    plan: TensorPlan

    def weights(self) -> torch.Tensor:
        return self.quantized.dequantize(self.plan)

    def reordered(self, rows: torch.Tensor) -> Coded:
        """Codes and shared scales alone, rows in another order."""
        grid = self.quantized.grid
        if self.plan.group_size != "tensor":
            grid = Grid(grid.scales[rows], None if grid.zeros is None else grid.zeros[rows])
        return Coded(QuantizedMatrix(self.quantized.codes[rows], grid), self.plan)


def read_contents(folder: Path) -> Iterator[tuple[str, torch.Tensor | Coded]]:
    """Every tensor under the model's own name, one at a time."""
    plans = read_plan(folder).tensors if is_checkpoint(folder) else []
    planned = {layer_name(plan): plan for plan in plans if plan.quantized}
    pending: dict[str, dict[str, torch.Tensor]] = {}
    for name, value in stream_tensors(ModelFolder(str(folder), folder)):
        layer, _, part = name.rpartition(".")
        if layer not in planned or part not in part_shapes(planned[layer]):
            yield name, value
            continue
        plan, parts = planned[layer], pending.setdefault(layer, {})
        parts[part] = value
        if len(parts) == len(part_shapes(plan)):
            check_parts(parts, plan)
            del planned[layer]
            yield plan.name, Coded(read_stored(pending.pop(layer), plan), plan)
    if planned:
        raise BrokenModel(f"{folder} is half-written: it lacks tensors of {next(iter(planned))}; quantize again")
