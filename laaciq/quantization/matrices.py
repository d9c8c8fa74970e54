"""Quantization of one matrix by its plan: kept weights, grid, codes, low-rank correction."""

from __future__ import annotations

from dataclasses import replace

import torch

from laaciq.quantization.calibration import TensorCalibration
from laaciq.quantization.compensation import refine_codes
from laaciq.quantization.grid import QuantizedMatrix, group, ungroup
from laaciq.quantization.kept import KeptWeights
from laaciq.quantization.low_rank import fit_low_rank
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.second_order import round_second_order
from laaciq.quantization.thresholds import fit_grid


def quantize_matrix(
    matrix: torch.Tensor,
    plan: TensorPlan,
    calibration: TensorCalibration | None = None,
    moments: torch.Tensor | None = None,
) -> QuantizedMatrix:
    """The quantized `matrix`, (outputs, inputs). Kept weights count as zero when the grid of the others is fitted.

    `moments` are E[xxᵀ] of the layer's inputs, for second-order rounding and for a low-rank correction, which without them uses
    `calibration`.
    """
    matrix = matrix.detach().float()
    kept = None
    rest = matrix
    if plan.kept:
        saliency = matrix.abs()
        if plan.keep_by == "saliency" and calibration is not None:
            saliency = saliency * calibration.mean_squares.mean(0).sqrt()
        kept = KeptWeights.of(matrix, saliency, plan.kept)
        rest = kept.put_into(matrix, 0.0)
    grid = fit_grid(rest, plan, calibration)
    if plan.rounding != "nearest" and moments is not None:
        codes = round_second_order(matrix, grid, plan, moments, kept)
        if plan.rounding == "compensated":
            codes = refine_codes(matrix, codes, grid, plan, moments, kept)
    else:
        codes = ungroup(grid.encode(group(rest, plan), plan.bits), plan).to(torch.uint8)
    quantized = QuantizedMatrix(codes.contiguous(), grid, kept)
    if not plan.rank:
        return quantized
    if moments is None and calibration is not None:
        moments = calibration.mean_squares.mean(0)
    residual = matrix - quantized.dequantize(plan)
    return replace(quantized, low_rank=fit_low_rank(residual, plan.rank, moments, kept))
