"""Integer grids: from weights to codes and back. Pure functions on matrices of shape (outputs, inputs).

Symmetric (mid-tread): w ≈ s·c with c from −q to q, q = 2^(B−1) − 1. Affine: w ≈ s·(c − z) with c and the integer zero point z from 0 to
2^B − 1. Scales are rounded to 16 bits *before* codes are computed, so that codes are best for what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.quantization.kept import KeptWeights
from laaciq.quantization.low_rank import LowRank
from laaciq.quantization.plan import TensorPlan

_FLOAT16_NORMAL = torch.finfo(torch.float16).tiny
_FLOAT16_MAX = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class Grid:
    """Scales, in the 16 bits that are stored, and zero points for an affine grid; both in the plan's `grid_shape`."""

    scales: torch.Tensor
    zeros: torch.Tensor | None

    def encode(self, groups: torch.Tensor, bits: int) -> torch.Tensor:
        """The nearest code of every weight, from 0 to 2^B − 1 (symmetric ones shifted by q). If a scale is zero, the code is the zero point."""
        quotients = _divide(groups, self.scales).round_()
        if self.zeros is None:
            levels = symmetric_levels(bits)
            return quotients.clamp_(-levels, levels).add_(levels)
        return quotients.add_(self.zeros.float()[..., None]).clamp_(0, 2**bits - 1)

    def rows(self, start: int, stop: int) -> Grid:
        """The grid of some outputs."""
        return Grid(self.scales[start:stop], None if self.zeros is None else self.zeros[start:stop])

    def decode(self, codes: torch.Tensor, bits: int) -> torch.Tensor:
        return self.units(codes, bits).mul_(self.scales.float()[..., None])

    def units(self, codes: torch.Tensor, bits: int) -> torch.Tensor:
        """Codes in units of the scale: c − q or c − z, as floats."""
        return codes.float() - (symmetric_levels(bits) if self.zeros is None else self.zeros.float()[..., None])


@dataclass(frozen=True)
class QuantizedMatrix:
    """Codes as uint8 in the matrix's shape, their grid, weights kept in 16 bits, `tables` of scales (tables, *grid_shape) for clusters of
    languages, and a low-rank correction of all weights except the kept ones.
    """

    codes: torch.Tensor
    grid: Grid
    kept: KeptWeights | None = None
    tables: torch.Tensor | None = None
    low_rank: LowRank | None = None

    def dequantize(self, plan: TensorPlan, table: int | None = None) -> torch.Tensor:
        """The dequantized weights in float32, exactly as a checkpoint stores them, with the shared scales or those of a table."""
        grid = self.grid
        if table is not None and self.tables is not None:
            grid = Grid(self.tables[table], grid.zeros)
        weights = ungroup(grid.decode(group(self.codes, plan), plan.bits), plan)
        if self.low_rank is not None:
            weights = weights + self.low_rank.product()
        return weights if self.kept is None else self.kept.put_into(weights)


Layers = Sequence[tuple[TensorPlan, QuantizedMatrix]]


def grid_between(low: torch.Tensor, high: torch.Tensor, plan: TensorPlan, dtype: torch.dtype) -> Grid:
    """The grid whose outermost points are `low` ≤ 0 and `high` ≥ 0 (symmetric: the larger magnitude on both sides)."""
    if plan.symmetric:
        return Grid((torch.maximum(-low, high) / symmetric_levels(plan.bits)).to(dtype), None)
    top = 2**plan.bits - 1
    scales = ((high - low) / top).to(dtype)
    return Grid(scales, _divide(-low[..., None], scales)[..., 0].round().clamp(0, top).to(torch.uint8))


def extremes(groups: torch.Tensor, plan: TensorPlan) -> tuple[torch.Tensor, torch.Tensor]:
    """Smallest and largest weight by group, or zero. A grid that contains zero keeps zero weights exact and the zero point within its bits."""
    low, high = groups.amin(-1), groups.amax(-1)
    if plan.group_size == "tensor":
        low, high = low.amin(0, keepdim=True), high.amax(0, keepdim=True)
    return low.clamp_max(0), high.clamp_min(0)


def scale_type(scales: torch.Tensor) -> torch.dtype:
    """float16, or bfloat16 if the scales exceed the range of float16."""
    nonzero = scales[scales > 0]
    fits = not len(nonzero) or bool(nonzero.min() >= _FLOAT16_NORMAL and nonzero.max() <= _FLOAT16_MAX)
    return torch.float16 if fits else torch.bfloat16


def group(matrix: torch.Tensor, plan: TensorPlan, *, filler: float | None = None) -> torch.Tensor:
    """The matrix as (outputs, groups, inputs per group). A short last group is padded with its last input, or with `filler`."""
    short = -matrix.shape[-1] % plan.group_inputs
    if short and filler is None:
        matrix = pad(matrix[None].float(), (0, short), mode="replicate")[0]
    elif short:
        matrix = pad(matrix, (0, short), value=filler)
    return matrix.reshape(matrix.shape[0], matrix.shape[-1] // plan.group_inputs, plan.group_inputs)


def ungroup(groups: torch.Tensor, plan: TensorPlan) -> torch.Tensor:
    return groups.flatten(1)[:, : plan.shape[1]]


def _divide(groups: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """w/s by group; a group of zeros has scale zero and quotient zero."""
    wide = scales.float()[..., None]
    return groups / wide.where(wide > 0, torch.inf)
