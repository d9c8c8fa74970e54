"""The effect of folding: whether any number changes, and what that costs each language."""

from __future__ import annotations

from pathlib import Path

import torch

from laaciq.corpus import Texts
from laaciq.engine.progress import Progress
from laaciq.evaluation import Evaluation, evaluate_measurements
from laaciq.exporting.results import Misfit
from laaciq.exporting.source import CheckpointSource
from laaciq.models import LanguageModel, find_model, load
from laaciq.models.computing import named_dtype
from laaciq.options import MeasureOptions
from laaciq.quantization.checkpoint import apply_checkpoint, stream_checkpoint
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.kept import to_16bit
from laaciq.quantization.switch import for_language
from laaciq.trials.measurement import measure_each
from laaciq.trials.quantized_copy import copy_of


def changes_numbers(source: CheckpointSource, misfits: list[Misfit]) -> bool:
    """True if folding changes weights: language tables that differ are lost, or weights need more than 16 bits."""
    if any(misfit.folded_to == "shared scales" or source.plan[misfit.tensor].tables for misfit in misfits):
        return True
    names = {misfit.tensor for misfit in misfits}
    if not names:
        return False
    for name, stored in stream_checkpoint(source.folder, source.plan):
        if name in names and isinstance(stored, QuantizedMatrix):
            weights = stored.dequantize(source.plan[name])
            if not torch.equal(to_16bit(weights).float(), weights):
                return True
    return False


def evaluate_folding(
    source: CheckpointSource,
    misfits: list[Misfit],
    test: Texts,
    options: MeasureOptions,
    *,
    against: str | Path,
    device: str,
    progress: Progress,
) -> tuple[Evaluation, Evaluation]:
    """Evaluations of the checkpoint with the scales of each language, and of its export, both against one pass of the original."""
    dtype = named_dtype(options.dtype)
    original = load(find_model(against), device=device, dtype=dtype)
    checkpoint = load(find_model(source.folder), device=device, dtype=dtype)
    export = folded_copy(original, source, misfits)
    pairs = []
    with progress.stage("measuring", sum(map(len, test.by_language.values()))) as advance:
        for code, passages in test.by_language.items():
            with for_language(checkpoint, code):
                pairs.append(measure_each(original, [checkpoint, export], passages, options, advance=advance))
    before, after = (
        evaluate_measurements(
            list(measurements),
            original=original.folder.name,
            quantized=name,
            texts=test.name,
            parallel=test.parallel,
            served_bound=options.served_bound,
            seed=options.seed,
        )
        for name, measurements in zip(
            (str(source.folder), f"{source.folder}, folded"), zip(*pairs, strict=True), strict=True
        )
    )
    return before, after


@torch.no_grad()
def folded_copy(original: LanguageModel, source: CheckpointSource, misfits: list[Misfit]) -> LanguageModel:
    """A copy of the original with the weights of the export: codes as in the checkpoint, folded tensors rounded to 16 bits."""
    quantized = copy_of(original)
    apply_checkpoint(quantized, source.folder)
    for misfit in misfits:
        if misfit.folded_to == "16 bits":
            weights = quantized.anatomy.matrices[misfit.tensor]
            weights.copy_(to_16bit(weights))
    return quantized
