"""Integer grids: from weights to codes and back. Pure functions on matrices of shape (outputs, inputs).

Symmetric (mid-tread): w ≈ s·c with c from −q to q, q = 2^(B−1) − 1. Affine: w ≈ s·(c − z) with c and the integer zero point z from 0 to
2^B − 1. Scales are rounded to 16 bits *before* codes are computed, so that codes are best for what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from laaciq.planning import TensorPlan

_FLOAT16_NORMAL = torch.finfo(torch.float16).tiny
_FLOAT16_MAX = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class QuantizedMatrix:
    """Codes from 0 to 2^B − 1 as uint8 (symmetric ones shifted by q), scales and zero points by group."""

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None

    def dequantize(self, plan: TensorPlan) -> torch.Tensor:
        """The simulated weights, float32: exactly what the stored codes mean."""
        grouped = _group(self.codes.float(), plan)
        shift = self.zeros.float() if self.zeros is not None else float(symmetric_levels(plan.bits))
        return _ungroup((grouped - _broadcast(shift)) * _broadcast(self.scales.float()), plan)


def symmetric_levels(bits: int) -> int:
    """q, the levels on each side of zero."""
    return 2 ** (bits - 1) - 1


def round_to_nearest(matrix: torch.Tensor, plan: TensorPlan) -> QuantizedMatrix:
    """The min–max grid of every group, and the nearest code of every weight."""
    grouped = _group(matrix.float(), plan)
    if plan.symmetric:
        levels = symmetric_levels(plan.bits)
        scales = stored_scale(grouped.abs().amax(-1) / levels)
        codes = _divide(grouped, scales).round().clamp(-levels, levels) + levels
        return QuantizedMatrix(_ungroup(codes, plan).to(torch.uint8), scales, None)
    top = 2**plan.bits - 1
    # A grid that holds zero keeps zero weights exact and the zero point within its bits.
    low, high = grouped.amin(-1).clamp_max(0), grouped.amax(-1).clamp_min(0)
    scales = stored_scale((high - low) / top)
    zeros = _divide(-low[..., None], scales)[..., 0].round().clamp(0, top)
    codes = (_divide(grouped, scales).round() + zeros[..., None]).clamp(0, top)
    return QuantizedMatrix(_ungroup(codes, plan).to(torch.uint8), scales, zeros.to(torch.uint8))


def stored_scale(scales: torch.Tensor) -> torch.Tensor:
    """Rounded to float16, or to bfloat16 where float16's range would not hold them."""
    nonzero = scales[scales > 0]
    fits = not len(nonzero) or bool(nonzero.min() >= _FLOAT16_NORMAL and nonzero.max() <= _FLOAT16_MAX)
    return scales.to(torch.float16 if fits else torch.bfloat16)


def _divide(grouped: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """w/s by group; a group of zeros has scale zero and quotient zero."""
    wide = scales.float()[..., None]
    return torch.where(wide > 0, grouped / wide.where(wide > 0, torch.ones_like(wide)), torch.zeros_like(grouped))


def _group(matrix: torch.Tensor, plan: TensorPlan) -> torch.Tensor:
    """(outputs, groups, inputs of a group); a short last group is filled up with its own last input."""
    if plan.group_size == "tensor":
        return matrix.reshape(1, 1, -1)
    short = -matrix.shape[1] % plan.group_inputs
    filled = pad(matrix[None], (0, short), mode="replicate")[0] if short else matrix
    return filled.reshape(matrix.shape[0], -1, plan.group_inputs)


def _ungroup(grouped: torch.Tensor, plan: TensorPlan) -> torch.Tensor:
    return grouped.reshape(plan.shape[0], -1)[:, : plan.shape[1]]


def _broadcast(by_group: torch.Tensor | float) -> torch.Tensor | float:
    return by_group[..., None] if isinstance(by_group, torch.Tensor) else by_group
