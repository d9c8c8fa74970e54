"""Quantization of a whole model by its plan: layer by layer, or block by block if codes depend on text, then tuning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

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
from laaciq.quantization.stored_layers import RoundedBlocks, StoredLayers
from laaciq.quantization.tuning import tune
from laaciq.quantization.tuning_state import KeptEpochs

# Every tensor that a plan quantizes, and tuned replacements of other tensors, by name.
Quantized = tuple[Iterable[tuple[TensorPlan, QuantizedMatrix]], Mapping[str, torch.Tensor]]


def quantize_model(
    model: LanguageModel,
    plan: Plan,
    calibration: Calibration | None = None,
    *,
    rounded: Layers | None = None,
    kept: RoundedBlocks | None = None,
    progress: Progress = Progress(),
    title: str = "rounding",
) -> Quantized:
    """The model quantized by the plan.

    Only a tuned plan needs all tensors at once; otherwise they come one at a time. `rounded` holds the plan's layers if planning has
    rounded them already. `kept` keeps what is rounded, block by block, and tuned, epoch by epoch: what is there already is not done again.
    Rounding is a stage of `progress` under the `title`, tuning is another.
    """
    if rounded is None:
        parts = _shown(_parts(model, plan, calibration, kept), plan, progress, title)
        if kept is None and not plan.tuned:
            return chain.from_iterable(parts), {}
        rounded = StoredLayers.joined([StoredLayers.of(part, model.device) for part in parts], model.device)
    if not plan.tuned or not rounded:
        return rounded, {}
    if calibration is None:
        raise BadOption("a tuned plan needs calibration text: give texts")
    epochs = None if kept is None else KeptEpochs(kept.store, kept.key, plan.tuned)
    tuned = tune(model, plan, rounded, calibration, epochs=plan.tuned, kept=epochs, progress=progress)
    return tuned.layers, tuned.others


def rounds_with_text(plan: Plan) -> bool:
    """True if layers are rounded block by block, each on what the quantized blocks before it return."""
    return any(tensor.quantized and tensor.rounding != "nearest" for tensor in plan.in_blocks)


def _shown(parts: Iterator[Layers], plan: Plan, progress: Progress, title: str) -> Iterator[Layers]:
    """The parts, each counted by the cost of its rounding."""
    costs = {tensor.name: rounding_share(tensor) for tensor in plan.tensors}
    with progress.stage(title, sum(costs.values())) as advance:
        for part in parts:
            tensors = part.plans.values() if isinstance(part, StoredLayers) else [tensor for tensor, _ in part]
            cost = sum(costs[tensor.name] for tensor in tensors)
            yield part
            advance(cost)


def quantize_layers(
    model: LanguageModel, plan: Plan, calibration: Calibration | None = None
) -> Iterator[tuple[TensorPlan, QuantizedMatrix]]:
    """Every tensor that the plan quantizes, embeddings first, one at a time. `calibration` is needed if the plan names languages."""
    return chain.from_iterable(_parts(model, plan, calibration))


def _parts(
    model: LanguageModel, plan: Plan, calibration: Calibration | None, kept: RoundedBlocks | None = None
) -> Iterator[Layers]:
    """The tensors in parts: as many at a time as are rounded together, or `kept` together."""
    linears = {linear.name: linear for linear in model.anatomy.linears}
    token_matrices = {matrix.name: matrix for matrix in model.anatomy.token_matrices}
    for tensor in plan.tensors:
        planned = token_matrices.get(tensor.name) if tensor.used_by else linears.get(tensor.name)
        if planned is None or planned.shape != tensor.shape:
            raise BrokenModel(
                f"this plan is for another model: {model.folder.name} has no {tensor.shape} {tensor.name}"
            )
    by_block: list[list[LinearLayer]] = [[] for _ in model.blocks]
    for tensor in plan.in_blocks:
        if tensor.quantized:
            by_block[linears[tensor.name].block].append(linears[tensor.name])
    looked_up = [token_matrices[tensor.name] for tensor in plan.token_matrices if tensor.quantized]
    if rounds_with_text(plan):
        yield from _block_by_block(model, plan, by_block, looked_up, calibration, kept)
        return
    for matrix in looked_up:
        yield [(plan[matrix.name], quantize_matrix(matrix.matrix, plan[matrix.name]))]
    streams: list[BlockStream] = []
    if plan.tables and calibration is not None:
        streams = [BlockStream(model, calibration, _equal(members)) for members in plan.tables]
    for index, in_block in enumerate(by_block):
        with model.present(index):
            by_table = [stream.pass_through(index, in_block) for stream in streams]
            for linear in in_block:
                tensor = plan[linear.name]
                known = (
                    calibration.of(linear.name, plan.languages, model.device)
                    if calibration and plan.languages
                    else None
                )
                quantized = quantize_matrix(linear.matrix, tensor, known)
                if by_table:
                    tables = [
                        refit_scales(linear.matrix, quantized, tensor, _moments(linear, moments))
                        for moments in by_table
                    ]
                    quantized = replace(quantized, tables=torch.stack(tables))
                yield [(tensor, quantized)]


def _moments(linear: LinearLayer, by_layer: dict[str, SecondMoments]) -> torch.Tensor:
    """Zero for an expert that no token is sent to."""
    if linear.name in by_layer:
        return by_layer[linear.name].moments
    return torch.zeros(linear.shape[1], linear.shape[1], device=linear.matrix.device)


def _equal(languages: list[str]) -> dict[str, float]:
    return dict.fromkeys(languages, 1 / len(languages))


def _block_by_block(
    model: LanguageModel,
    plan: Plan,
    by_block: list[list[LinearLayer]],
    looked_up: list[TokenMatrix],
    calibration: Calibration | None,
    kept: RoundedBlocks | None,
) -> Iterator[Layers]:
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
            _put(matrix, quantized, tensor)
            yield [(tensor, quantized)]
        if kept is not None and (parts := _kept_parts(by_block, plan, kept, model.device)) is not None:
            yield from parts
            return
        # This reads all embeddings; from here on only blocks are run.
        beside = any(plan[linear.name].rounding == "compensated" for layers in by_block for linear in layers)
        stream = BlockStream(model, calibration, plan.weights, beside_original=beside)
    few = FewTokens()
    for index, in_block in enumerate(by_block):
        tensors = [plan[linear.name] for linear in in_block]
        with _block_for_rounding(model, index, in_block):
            part: Layers | None = None if kept is None else kept.block(index, tensors, model.device)
            if part is None:
                rounded = _round_block(stream, index, in_block, plan, few)
                part = [(tensor, rounded[tensor.name]) for tensor in tensors]
            else:
                stream.advance_original(index)
            for linear, (tensor, quantized) in zip(in_block, part, strict=True):
                _put(linear, quantized, tensor)
            if kept is not None and not isinstance(part, StoredLayers):
                part = kept.keep(index, StoredLayers.of(part, model.device))
            yield part
            stream.advance(index)
    few.warn()


def _kept_parts(
    by_block: list[list[LinearLayer]], plan: Plan, kept: RoundedBlocks, device: torch.device
) -> list[StoredLayers] | None:
    """The layers of every block if all of them are kept, else None."""
    parts = []
    for index, in_block in enumerate(by_block):
        part = kept.block(index, [plan[linear.name] for linear in in_block], device)
        if part is None and in_block:
            return None
        parts += [] if part is None else [part]
    return parts


def _round_block(
    stream: BlockStream, index: int, layers: list[LinearLayer], plan: Plan, few: FewTokens
) -> dict[str, QuantizedMatrix]:
    """The layers of a block by name. Those that read the same input are rounded together."""
    moments = stream.second_moments(index, layers)
    few.see(layers, moments)
    rounded: dict[str, QuantizedMatrix] = {}
    for linear in layers:
        if linear.name not in rounded:
            rounded |= _round_shared(linear, layers, plan, moments)
    return rounded


@torch.no_grad()
def _put(layer: LinearLayer | TokenMatrix, quantized: QuantizedMatrix, plan: TensorPlan) -> None:
    layer.matrix.copy_(quantized.dequantize(plan))


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
def _block_for_rounding(model: LanguageModel, index: int, layers: Sequence[LinearLayer]) -> Iterator[None]:
    """Context manager: a block is present, and changes to these layers are lost at the end."""
    lying = [layer.module.get_parameter("weight") for layer in layers]
    with model.present(index):
        # Weights that an offloaded block has fetched just now are given up anyway: a copy would only take memory and time.
        staying = [
            layer for layer, weight in zip(layers, lying, strict=True) if layer.module.get_parameter("weight") is weight
        ]
        with _restored(staying):
            yield


@contextmanager
def _restored(layers: Sequence[LinearLayer | TokenMatrix]) -> Iterator[None]:
    before = [layer.matrix.detach().clone() for layer in layers]
    try:
        yield
    finally:
        with torch.no_grad():
            for layer, original in zip(layers, before, strict=True):
                layer.matrix.copy_(original)
