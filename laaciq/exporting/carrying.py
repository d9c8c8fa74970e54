"""Our codes on another format's grid, without loss: wider codes on the same scales, scales repeated over smaller groups. Pure functions.

Formats store unsigned codes with w = s·(c − z). Ours fit into as many bits or more: an affine code and its zero point unchanged, a
symmetric c from −q to q, q = 2^(B−1) − 1, as c + 2^(B'−1) with the middle 2^(B'−1) as zero point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.packing import pack
from laaciq.quantization.plan import TensorPlan

# Smaller groups would take more bits for scales than for codes.
SMALLEST_GROUP = 16
_WORD = 32


@dataclass(frozen=True)
class Layout:
    """How a format stores one matrix; a `group_size` of None means the whole row."""

    bits: int
    group_size: int | None
    symmetric: bool

    @property
    def words(self) -> str:
        return f"{self.bits} bits, {'rows' if self.group_size is None else f'groups of {self.group_size}'}"


@dataclass(frozen=True)
class CarriedMatrix:
    """Codes (outputs, inputs) as uint8; scales in 16 bits and zero points as uint8, both (outputs, groups)."""

    layout: Layout
    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor

    def dequantize(self) -> torch.Tensor:
        """w = s·(c − z), float32."""
        wide = self.codes.shape[1] // self.scales.shape[1]
        steps = self.codes.float() - self.zeros.float().repeat_interleave(wide, 1)
        return steps * self.scales.float().repeat_interleave(wide, 1)


def fit(plan: TensorPlan, *, bits: tuple[int, ...], groups: tuple[int, ...] | None) -> Layout | None:
    """The smallest layout of a format that holds the plan's grid; None if there is none. `groups` None allows every size.

    Groups of n inputs in rows of m divide into groups of gcd(n, m), even if the last one is short, and of any divisor of that.
    """
    wide_enough = [offered for offered in bits if offered >= plan.bits]
    if not wide_enough:
        return None
    if plan.group_inputs == plan.shape[1]:
        return Layout(min(wide_enough), None, plan.symmetric)
    common = math.gcd(plan.group_inputs, plan.shape[1])
    fitting = [size for size in ((common,) if groups is None else groups) if common % size == 0]
    if not fitting or max(fitting) < SMALLEST_GROUP:
        return None
    return Layout(min(wide_enough), max(fitting), plan.symmetric)


def beside_codes(plan: TensorPlan) -> str | None:
    """What a tensor has beside codes and scales that no other format holds."""
    if plan.kept:
        return f"{plan.keep:g} % of its weights are kept in 16 bits"
    return f"it has a correction of rank {plan.rank}" if plan.rank else None


def carry(matrix: QuantizedMatrix, plan: TensorPlan, layout: Layout) -> CarriedMatrix:
    """The matrix in a layout that `fit` chose for its plan, with the shared scales. Its weights are exactly the same."""
    codes, zeros = matrix.codes, matrix.grid.zeros
    if zeros is None:
        middle = 2 ** (layout.bits - 1)
        codes = codes + (middle - symmetric_levels(plan.bits))
        zeros = torch.full_like(matrix.grid.scales, middle, dtype=torch.uint8)
    scales, zeros = (_repeated(values, plan, layout) for values in (matrix.grid.scales, zeros))
    return CarriedMatrix(layout, codes, scales, zeros)


def _repeated(values: torch.Tensor, plan: TensorPlan, layout: Layout) -> torch.Tensor:
    """Values of the plan's groups for the layout's groups: the tensor's value for every row, a group's value for all its parts."""
    outputs, inputs = plan.shape
    size = layout.group_size or inputs
    return values.expand(outputs, -1).repeat_interleave(plan.group_inputs // size, 1)[:, : inputs // size].contiguous()


def pack_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes (rows, n) → int32 (rows, ⌈n·B/32⌉): code i of a row takes its bits i·B to (i+1)·B, low bits first, across words if B does not
    divide 32.
    """
    rows, count = codes.shape
    whole = torch.nn.functional.pad(codes, (0, -count % _WORD))
    words = pack(whole, bits).view(torch.int32).reshape(rows, -1)
    return words[:, : -(-count * bits // _WORD)].contiguous()
