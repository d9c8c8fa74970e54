"""The tensors of a model folder, without building the model: codes of our checkpoints, weights of any other model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from laaciq.models import ModelFolder, stream_tensors
from laaciq.quantization import is_checkpoint, read_plan
from laaciq.quantization.checkpoint import stream_checkpoint
from laaciq.quantization.grid import Grid, QuantizedMatrix
from laaciq.quantization.plan import TensorPlan


@dataclass(frozen=True)
class Coded:
    """A quantized matrix, with its plan."""

    quantized: QuantizedMatrix
    plan: TensorPlan

    def weights(self) -> torch.Tensor:
        return self.quantized.dequantize(self.plan)

    def reordered(self, rows: torch.Tensor) -> Coded:
        """Codes and shared scales only, with rows in another order."""
        grid = self.quantized.grid
        if self.plan.group_size != "tensor":
            grid = Grid(grid.scales[rows], None if grid.zeros is None else grid.zeros[rows])
        return Coded(QuantizedMatrix(self.quantized.codes[rows], grid), self.plan)


def read_contents(folder: Path) -> Iterator[tuple[str, torch.Tensor | Coded]]:
    """Every tensor by its name in the model, one at a time."""
    if not is_checkpoint(folder):
        yield from stream_tensors(ModelFolder(str(folder), folder))
        return
    plan = read_plan(folder)
    for name, stored in stream_checkpoint(folder, plan):
        yield name, Coded(stored, plan[name]) if isinstance(stored, QuantizedMatrix) else stored
