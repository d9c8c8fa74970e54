"""Quantization of a whole model by its plan: layer by layer, or block by block if codes depend on text, then tuning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from laaciq.engine.progress import Progress
from laaciq.errors import BadOption, BrokenModel
from laaciq.models import LanguageModel, LinearLayer, TokenMatrix
from laaciq.quantization.blockwise import BlockStream
from laaciq.quantization.calibration import Calibration, TensorCalibration
from laaciq.quantization.compensation import compensated_weights
from laaciq.quantization.few_tokens import FewTokens, nearest_plan
from laaciq.quantization.grid import Layers, QuantizedMatrix
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.matrices import quantize_matrices, quantize_matrix
from laaciq.quantization.operations import rounding_share
from laaciq.quantization.plan import Plan, TensorPlan
from laaciq.quantization.refit import refit_scales
from laaciq.quantization.second_moments import SecondMoments
from laaciq.quantization.tuning import tune

# Memory for the second moments that tables need. If those of a model do not fit, it is read once per part that does.
MOMENT_BYTES = 2**31


def quantize_model(
    model: LanguageModel,
    plan: Plan,
    calibration: Calibration | None = None,
    *,
    rounded: Layers | None = None,
    progress: Progress = Progress(),
    title: str = "rounding",
) -> tuple[Iterable[tuple[TensorPlan, QuantizedMatrix]], Mapping[str, torch.Tensor]]:
    """Every tensor that the plan quantizes, and tuned replacements of other tensors, by name.

    Only a tuned plan needs all tensors at once; otherwise they come one at a time. `rounded` holds the plan's layers if planning has
    rounded them already. Rounding is a stage of `progress` under the `title`, tuning is another.
    """
    layers: Iterable[tuple[TensorPlan, QuantizedMatrix]] = rounded or []
    if rounded is None:
        layers = _shown(quantize_layers(model, plan, calibration), plan, progress, title)
    if not plan.tuned:
        return layers, {}
    if calibration is None:
        raise BadOption("a tuned plan needs calibration text: give texts")
    all_layers = list(layers)
    if not all_layers:
        return [], {}
    tuned = tune(model, plan, all_layers, calibration, epochs=plan.tuned, progress=progress)
    return tuned.layers, tuned.others


def _shown(
    layers: Iterator[tuple[TensorPlan, QuantizedMatrix]], plan: Plan, progress: Progress, title: str
) -> Iterator[tuple[TensorPlan, QuantizedMatrix]]:
    """The layers, each counted by the cost of its rounding."""
    costs = {tensor.name: rounding_share(tensor) for tensor in plan.tensors}
    with progress.stage(title, sum(costs.values())) as advance:
        for tensor, matrix in layers:
            yield tensor, matrix
            advance(costs[tensor.name])


def quantize_layers(
    model: LanguageModel, plan: Plan, calibration: Calibration | None = None
) -> Iterator[tuple[TensorPlan, QuantizedMatrix]]:
    """Every tensor that the plan quantizes, embeddings first, one at a time. `calibration` is needed if the plan names languages."""
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
    """Every layer, rounded with the moments of its inputs from the quantized embeddings and blocks before it. Afterwards the model is as
    before.
    """
    if calibration is None:
        raise BadOption(f"method {plan.method!r} needs calibration text: give texts")
    if plan.passages is not None:
        calibration = replace(calibration, texts=calibration.texts.spread(plan.passages))
    with _restored(looked_up):
        for matrix in looked_up:
            tensor = plan[matrix.name]
            quantized = quantize_matrix(matrix.matrix, tensor)
            with torch.no_grad():
                matrix.matrix.copy_(quantized.dequantize(tensor))
            yield tensor, quantized
        # This reads all embeddings; from here on only blocks are run.
        beside = any(plan[linear.name].rounding == "compensated" for linear in linears)
        stream = BlockStream(model, calibration, plan.weights, beside_original=beside)
    few = FewTokens()
    for index in range(len(model.anatomy.block_names)):
        in_block = [linear for linear in linears if linear.block == index]
        moments = stream.second_moments(index, in_block)
        few.see(in_block, moments)
        with _restored(in_block):
            rounded: dict[str, QuantizedMatrix] = {}
            for linear in in_block:
                if linear.name not in rounded:
                    rounded |= _round_shared(linear, in_block, plan, moments)
                tensor, quantized = plan[linear.name], rounded.pop(linear.name)
                with torch.no_grad():
                    linear.matrix.copy_(quantized.dequantize(tensor))
                yield tensor, quantized
            stream.advance(index)
    few.warn()


def _round_shared(
    first: LinearLayer, layers: list[LinearLayer], plan: Plan, moments: dict[str, SecondMoments]
) -> dict[str, QuantizedMatrix]:
    """The layer and those that read the same input, by name. Their second moments leave `moments`. An expert without them is rounded to
    nearest.
    """
    if first.name not in moments:
        return {first.name: quantize_matrix(first.matrix, nearest_plan(plan[first.name]))}
    seen = moments[first.name]
    sharing = [layer for layer in layers if moments.get(layer.name) is seen]
    tensors = [plan[layer.name] for layer in sharing]
    for layer in sharing:
        del moments[layer.name]
    known = TensorCalibration(_relative(seen.moments.diagonal())[None], effective_kurtosis=0.0)
    hessian = Hessian(seen.moments)
    wanted = [
        compensated_weights(layer.matrix, hessian, seen.cross)
        if tensor.rounding == "compensated" and seen.cross is not None
        else layer.matrix
        for layer, tensor in zip(sharing, tensors, strict=True)
    ]
    quantized = quantize_matrices(wanted, tensors, known, hessian)
    return dict(zip((layer.name for layer in sharing), quantized, strict=True))


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
    """The layers in order, as many at a time as have second moments within `MOMENT_BYTES`."""
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
