"""Matrices that read the same input as one matrix of all their outputs: rounding goes input by input, and outputs are independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from laaciq.quantization.grid import Grid
from laaciq.quantization.kept import KeptWeights
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.rounding_kernels.output_grids import OutputGrids


@dataclass(frozen=True)
class StackedMatrices:
    """`weights`, (inputs, outputs), float32, and the grids of their outputs. `kept` holds the kept weights, NaN elsewhere; None if there are
    none.
    """

    weights: torch.Tensor
    grids: OutputGrids
    kept: torch.Tensor | None = None

    @classmethod
    def of(cls, matrix: torch.Tensor, grid: Grid, plan: TensorPlan, kept: KeptWeights | None = None) -> StackedMatrices:
        """One matrix, (outputs, inputs)."""
        weights = matrix.detach().float()
        exact = None if kept is None else kept.put_into(torch.full_like(weights, torch.nan)).T.contiguous()
        return cls(weights.T.contiguous(), OutputGrids.of(grid, plan), exact)

    @classmethod
    def stacked(cls, parts: Sequence[StackedMatrices]) -> StackedMatrices:
        """All outputs of the parts, whose groups of inputs are the same."""
        if len(parts) == 1:
            return parts[0]
        kept = None
        if any(part.kept is not None for part in parts):
            kept = torch.cat(
                [torch.full_like(p.weights, torch.nan) if p.kept is None else p.kept for p in parts], dim=1
            )
        weights = torch.cat([part.weights for part in parts], dim=1)
        return cls(weights, OutputGrids.stacked([part.grids for part in parts]), kept)

    def at(self, inputs: torch.Tensor | slice) -> StackedMatrices:
        """These inputs alone, in this order. A tensor of inputs makes a copy."""
        kept = None if self.kept is None else self.kept[inputs]
        return StackedMatrices(self.weights[inputs], self.grids.at(inputs), kept)
