"""A layer whose codes are fixed and whose scales move: weights w = s·u, with u the codes in units of the scale, and gradients of scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch

from laaciq.quantization.grid import Grid, QuantizedMatrix, group
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.products import (
    PackedMatrix,
    Packing,
    packed_group_sums,
    packed_weights,
    why_no_product,
    why_no_triton,
)
from laaciq.quantization.stored_layers import StoredLayers

# Weights that are unpacked at a time on a CPU: they stay in its cache between one operation and the next.
PIECE = 2**17


class FixedCodes(Protocol):
    def weights(self, scales: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The dequantized weights with other scales."""

    def by_scale(self, gradient: torch.Tensor) -> torch.Tensor:
        """∂/∂s = Σ u·∂/∂w over the weights of each scale, from ∂/∂w. Kept weights do not depend on scales."""


def fixed_codes(layers: StoredLayers, name: str) -> FixedCodes:
    """On a GPU, kernels read the packed codes where they can; else they are unpacked."""
    plan = layers.plans[name]
    if layers.device.type == "cuda" and why_no_product(plan) is None and why_no_triton(layers.device) is None:
        return PackedCodes.of(layers.packed(name), plan)
    return UnpackedCodes(layers.matrix(name), plan)


@dataclass(frozen=True)
class UnpackedCodes:
    matrix: QuantizedMatrix
    plan: TensorPlan

    def weights(self, scales: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        matrix = replace(self.matrix, grid=Grid(scales, self.matrix.grid.zeros))
        if matrix.kept is not None or matrix.low_rank is not None:
            return matrix.dequantize(self.plan).to(dtype)
        return torch.cat([piece.dequantize(self.plan).to(dtype) for piece in self._pieces(matrix)])

    def by_scale(self, gradient: torch.Tensor) -> torch.Tensor:
        if self.matrix.kept is not None:
            gradient = self.matrix.kept.put_into(gradient, 0.0)
        pieces = self._pieces(self.matrix)
        rows = gradient.split([len(piece.codes) for piece in pieces])
        sums = [_summed(self._units(piece), part, self.plan) for piece, part in zip(pieces, rows, strict=True)]
        return torch.cat(sums)

    def _units(self, piece: QuantizedMatrix) -> torch.Tensor:
        return piece.grid.units(group(piece.codes, self.plan), self.plan.bits)

    def _pieces(self, matrix: QuantizedMatrix) -> list[QuantizedMatrix]:
        """The matrix, on a CPU a few outputs at a time."""
        codes, grid = matrix.codes, matrix.grid
        rows = max(1, PIECE // codes.shape[1])
        if codes.device.type != "cpu" or self.plan.group_size == "tensor":
            rows = len(codes)
        starts = range(0, len(codes), rows)
        return [QuantizedMatrix(codes[start : start + rows], grid.rows(start, start + rows)) for start in starts]


@dataclass(frozen=True)
class PackedCodes:
    matrix: PackedMatrix
    plan: TensorPlan

    @classmethod
    def of(cls, parts: dict[str, torch.Tensor], plan: TensorPlan) -> PackedCodes:
        packing = Packing.of(plan)
        return cls(PackedMatrix(parts["codes"], parts["scales"], parts.get("zeros"), packing, plan.shape[0]), plan)

    def weights(self, scales: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return packed_weights(self.matrix._replace(scales=scales), dtype)

    def by_scale(self, gradient: torch.Tensor) -> torch.Tensor:
        if self.matrix.packing.sums_by_group:
            return packed_group_sums(self.matrix, gradient)
        units = self.weights(torch.ones_like(self.matrix.scales))
        return _summed(group(units, self.plan, filler=0.0), gradient, self.plan)


def _summed(units: torch.Tensor, gradient: torch.Tensor, plan: TensorPlan) -> torch.Tensor:
    by_group = (units * group(gradient, plan, filler=0.0)).sum(-1)
    return by_group.sum().reshape(1, 1) if plan.group_size == "tensor" else by_group
