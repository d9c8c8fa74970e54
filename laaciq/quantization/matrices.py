"""Quantization of matrices by their plans: kept weights, grid, codes, low-rank correction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from laaciq.quantization.calibration import TensorCalibration
from laaciq.quantization.compensation import refine_codes
from laaciq.quantization.grid import Grid, QuantizedMatrix, group, ungroup
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.kept import KeptWeights
from laaciq.quantization.low_rank import fit_low_rank
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.second_order import round_second_order
from laaciq.quantization.stacked import StackedMatrices
from laaciq.quantization.thresholds import fit_grid


def quantize_matrix(
    matrix: torch.Tensor,
    plan: TensorPlan,
    calibration: TensorCalibration | None = None,
    hessian: Hessian | None = None,
) -> QuantizedMatrix:
    """The quantized `matrix`, (outputs, inputs). Kept weights count as zero when the grid of the others is fitted.

    `hessian` is that of the layer's inputs, for second-order rounding and for a low-rank correction, which without it uses `calibration`.
    """
    (quantized,) = quantize_matrices([matrix], [plan], calibration, hessian)
    return quantized


def quantize_matrices(
    matrices: Sequence[torch.Tensor],
    plans: Sequence[TensorPlan],
    calibration: TensorCalibration | None = None,
    hessian: Hessian | None = None,
) -> list[QuantizedMatrix]:
    """The quantized matrices of layers that read the same input. Second-order rounding takes those with equal groups together."""
    fitted = [_Fitted.of(matrix, plan, calibration) for matrix, plan in zip(matrices, plans, strict=True)]
    codes: dict[int, torch.Tensor] = {}
    if hessian is not None:
        together: dict[tuple[str, int], list[int]] = {}
        for number, plan in enumerate(plans):
            together.setdefault((plan.rounding, plan.group_inputs), []).append(number)
        for (rounding, _), numbers in together.items():
            if rounding != "nearest":
                rounded = _round_together([fitted[n] for n in numbers], hessian, refined=rounding == "compensated")
                codes |= zip(numbers, rounded, strict=True)
    return [
        part.quantized(codes[number] if number in codes else part.nearest_codes(), calibration, hessian)
        for number, part in enumerate(fitted)
    ]


@dataclass(frozen=True)
class _Fitted:
    """A matrix in float32, with its kept weights and its grid."""

    matrix: torch.Tensor
    plan: TensorPlan
    kept: KeptWeights | None
    grid: Grid

    @classmethod
    def of(cls, matrix: torch.Tensor, plan: TensorPlan, calibration: TensorCalibration | None) -> _Fitted:
        matrix = matrix.detach().float()
        kept = None
        if plan.kept:
            saliency = matrix.abs()
            if plan.keep_by == "saliency" and calibration is not None:
                saliency = saliency * calibration.mean_squares.mean(0).sqrt()
            kept = KeptWeights.of(matrix, saliency, plan.kept)
        return cls(matrix, plan, kept, fit_grid(_rest(matrix, kept), plan, calibration))

    def nearest_codes(self) -> torch.Tensor:
        groups = group(_rest(self.matrix, self.kept), self.plan)
        return ungroup(self.grid.encode(groups, self.plan.bits), self.plan).to(torch.uint8)

    def quantized(
        self, codes: torch.Tensor, calibration: TensorCalibration | None, hessian: Hessian | None
    ) -> QuantizedMatrix:
        result = QuantizedMatrix(codes.contiguous(), self.grid, self.kept)
        if not self.plan.rank:
            return result
        moments = None if hessian is None else hessian.moments
        if moments is None and calibration is not None:
            moments = calibration.mean_squares.mean(0)
        residual = self.matrix - result.dequantize(self.plan)
        return replace(result, low_rank=fit_low_rank(residual, self.plan.rank, moments, self.kept))


def _rest(matrix: torch.Tensor, kept: KeptWeights | None) -> torch.Tensor:
    return matrix if kept is None else kept.put_into(matrix, 0.0)


def _round_together(parts: Sequence[_Fitted], hessian: Hessian, *, refined: bool) -> list[torch.Tensor]:
    """The codes of each part, (outputs, inputs)."""
    stack = StackedMatrices.stacked([StackedMatrices.of(p.matrix, p.grid, p.plan, p.kept) for p in parts])
    codes = round_second_order(stack, hessian)
    if refined:
        codes = refine_codes(stack, codes, hessian)
    return list(codes.T.split([len(part.matrix) for part in parts]))
