"""The grids of all outputs, as rounding reads them: by group, and spread out input by input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.quantization.grid import Grid
from laaciq.quantization.plan import TensorPlan


@dataclass(frozen=True)
class OutputGrids:
    """Scales and zero points, (groups, outputs), and the highest code of every output, all float32; the group of every input, int32. If a
    scale is zero, the code is the zero point.
    """

    scales: torch.Tensor
    zeros: torch.Tensor
    tops: torch.Tensor
    groups: torch.Tensor

    @classmethod
    def of(cls, grid: Grid, plan: TensorPlan) -> OutputGrids:
        outputs, inputs = plan.shape
        levels = symmetric_levels(plan.bits)
        scales = grid.scales.float().expand(outputs, -1).T.contiguous()
        zeros, top = torch.full_like(scales, levels), 2 * levels
        if grid.zeros is not None:
            zeros, top = grid.zeros.float().expand(outputs, -1).T.contiguous(), 2**plan.bits - 1
        groups = torch.arange(inputs, dtype=torch.int32, device=scales.device) // plan.group_inputs
        return cls(scales, zeros, torch.full_like(scales[0], top), groups)

    @classmethod
    def stacked(cls, grids: Sequence[OutputGrids]) -> OutputGrids:
        """The outputs of all of them, whose groups are the same."""
        scales, zeros, tops = (
            torch.cat([getattr(grid, name) for grid in grids], dim=-1) for name in ("scales", "zeros", "tops")
        )
        return cls(scales, zeros, tops, grids[0].groups)

    def at(self, inputs: torch.Tensor | slice) -> OutputGrids:
        """The grids of these inputs, in this order."""
        return replace(self, groups=self.groups[inputs])

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.scales, self.zeros, self.tops, self.groups

    def by_input(self) -> GridByInput:
        scales = self.scales[self.groups]
        return GridByInput(scales, scales.where(scales > 0, torch.inf), self.zeros[self.groups], self.tops)


@dataclass(frozen=True)
class GridByInput:
    """Scale and zero point of every weight, input by input, (inputs, outputs), and the highest code of every output. If a scale is zero,
    `divisors` is infinite, so that quotients are zero.
    """

    scales: torch.Tensor
    divisors: torch.Tensor
    zeros: torch.Tensor
    tops: torch.Tensor

    def rows(self) -> list[GridByInput]:
        """One grid per input."""
        parts = zip(self.scales.unbind(), self.divisors.unbind(), self.zeros.unbind(), strict=True)
        return [GridByInput(*part, self.tops) for part in parts]

    def encode(self, weights: torch.Tensor) -> torch.Tensor:
        """The nearest codes, as floats."""
        return torch.addcdiv(self.zeros, weights, self.divisors).round_().clamp_min_(0.0).minimum(self.tops)

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """The weights that codes stand for."""
        return (codes - self.zeros).mul_(self.scales)
