"""Matrices by their plans: what is kept, the grid of the rest, the codes, the low-rank correction, the tables of clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from laaciq.errors import BadOption, BrokenModel
from laaciq.models import LanguageModel, LinearLayer, TokenMatrix
from laaciq.quantization.blockwise import BlockStream
from laaciq.quantization.calibration import Calibration, TensorCalibration
from laaciq.quantization.compensation import compensating, descend
from laaciq.quantization.grid import QuantizedMatrix, group, ungroup
from laaciq.quantization.kept import KeptWeights
from laaciq.quantization.low_rank import fit_low_rank
from laaciq.quantization.plan import Plan, TensorPlan
from laaciq.quantization.refit import refit_scales
from laaciq.quantization.second_order import round_second_order
from laaciq.quantization.thresholds import fit_grid

# For the second moments that tables need; a model whose moments do not fit is passed over once for every part of it that does.
MOMENT_BYTES = 2**31


def quantize_matrix(
    matrix: torch.Tensor,
    plan: TensorPlan,
    calibration: TensorCalibration | None = None,
    moments: torch.Tensor | None = None,
) -> QuantizedMatrix:
    """Codes of `matrix`, (outputs, inputs). Kept weights count as zero for the grid of the others: that is what keeping them is for.

    `moments` are E[xxᵀ] of the layer's inputs, for second-order rounding and for a low-rank correction, which otherwise takes what it can of
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
            codes = descend(matrix, codes, grid, plan, moments, kept)
    else:
        codes = ungroup(grid.encode(group(rest, plan), plan.bits), plan).to(torch.uint8)
    quantized = QuantizedMatrix(codes.contiguous(), grid, kept)
    if not plan.rank:
        return quantized
    if moments is None and calibration is not None:
        moments = calibration.mean_squares.mean(0)
    residual = matrix - quantized.dequantize(plan)
    return replace(quantized, low_rank=fit_low_rank(residual, plan.rank, moments, kept))


def quantize_layers(
    model: LanguageModel, plan: Plan, calibration: Calibration | None = None
) -> Iterator[tuple[TensorPlan, QuantizedMatrix]]:
    """Every tensor that the plan quantizes, embeddings first, one at a time. `calibration` is needed where the plan names languages."""
    linears = {linear.name: linear for linear in model.anatomy.linears}
    token_matrices = {matrix.name: matrix for matrix in model.anatomy.token_matrices}
    for tensor in plan.tensors:
        planned = token_matrices.get(tensor.name) if tensor.used_by else linears.get(tensor.name)
        if planned is None or planned.shape != tensor.shape:
            raise BrokenModel(
                f"this plan is for another model: {model.folder.name} has no {tensor.shape} {tensor.name}"
            )
    chosen = [linears[tensor.name] for tensor in plan.in_blocks if tensor.quantized]
    looked_up = [token_matrices[tensor.name] for tensor in plan.token_matrices if tensor.quantized]
    if any(plan[linear.name].rounding != "nearest" for linear in chosen):
        yield from _block_by_block(model, plan, chosen, looked_up, calibration)
        return
    for matrix in looked_up:
        yield plan[matrix.name], quantize_matrix(matrix.matrix, plan[matrix.name])
    for part in moment_parts(chosen) if plan.tables else [chosen]:
        by_table = []
        if plan.tables and calibration is not None:
            by_table = [calibration.second_moments(model, part, members) for members in plan.tables]
        for linear in part:
            tensor = plan[linear.name]
            known = (
                calibration.of(linear.name, plan.languages, model.device) if calibration and plan.languages else None
            )
            quantized = quantize_matrix(linear.matrix, tensor, known)
            if by_table:
                tables = [refit_scales(linear.matrix, quantized, tensor, moments[linear.name]) for moments in by_table]
                quantized = replace(quantized, tables=torch.stack(tables))
            yield tensor, quantized


def _block_by_block(
    model: LanguageModel,
    plan: Plan,
    linears: list[LinearLayer],
    looked_up: list[TokenMatrix],
    calibration: Calibration | None,
) -> Iterator[tuple[TensorPlan, QuantizedMatrix]]:
    """Each block with the moments of what embeddings and the blocks before it, as quantized, pass on. The model is afterwards what it was."""
    if calibration is None:
        raise BadOption(f"method {plan.method!r} calibrates on text: give texts")
    if plan.passages is not None:
        calibration = replace(calibration, texts=calibration.texts.spread(plan.passages))
    with _restored(looked_up):
        for matrix in looked_up:
            tensor = plan[matrix.name]
            quantized = quantize_matrix(matrix.matrix, tensor)
            with torch.no_grad():
                matrix.matrix.copy_(quantized.dequantize(tensor))
            yield tensor, quantized
        # It reads all embeddings at once: from here on only blocks are run.
        beside = any(plan[linear.name].rounding == "compensated" for linear in linears)
        stream = BlockStream(model, calibration, plan.weights, beside_original=beside)
    for index in range(len(model.anatomy.block_names)):
        own = [linear for linear in linears if linear.block == index]
        moments = stream.second_moments(index, own)
        with _restored(own):
            for linear in own:
                tensor, seen = plan[linear.name], moments[linear.name]
                known = TensorCalibration(_relative(seen.own.diagonal())[None], effective_kurtosis=0.0)
                wanted = linear.matrix
                if tensor.rounding == "compensated" and seen.crossed is not None:
                    wanted = compensating(linear.matrix, seen.own, seen.crossed)
                quantized = quantize_matrix(wanted, tensor, known, seen.own)
                with torch.no_grad():
                    linear.matrix.copy_(quantized.dequantize(tensor))
                yield tensor, quantized
            stream.advance(index)


def _relative(squares: torch.Tensor) -> torch.Tensor:
    return squares / squares.mean().clamp_min(1e-30)


@contextmanager
def _restored(layers: Sequence[LinearLayer | TokenMatrix]) -> Iterator[None]:
    before = [layer.matrix.detach().clone() for layer in layers]
    try:
        yield
    finally:
        with torch.no_grad():
            for layer, original in zip(layers, before, strict=True):
                layer.matrix.copy_(original)


def moment_parts(linears: list[LinearLayer]) -> Iterator[list[LinearLayer]]:
    """In order, as many at a time as `MOMENT_BYTES` hold the second moments of."""
    part: list[LinearLayer] = []
    total = 0
    for linear in linears:
        size = 4 * linear.shape[1] ** 2
        if part and total + size > MOMENT_BYTES:
            yield part
            part, total = [], 0
        part.append(linear)
        total += size
    yield part
