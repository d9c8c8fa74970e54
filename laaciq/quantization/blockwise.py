"""Calibration block by block: every block sees what the blocks before it, already quantized, make of the text.

One pass over the model notes how each block is called; from then on only blocks are run, on hidden states that are kept for one block at a
time. In an encoder-decoder the decoder hears the original encoder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from laaciq.models import LanguageModel, LinearLayer
from laaciq.profiling.activations import blocks_in_encoder, mask_for, read_masks, readings
from laaciq.quantization.calibration import Calibration
from laaciq.scoring.block_calls import BlockCalls
from laaciq.scoring.likelihood import batch_tokens, batches
from laaciq.scoring.sequences import ScoredPassage


@dataclass
class _Batch:
    """The calls of one batch, what each token counts there (padding nothing), and how far it has come."""

    calls: BlockCalls
    weights: dict[bool, torch.Tensor]
    hidden: torch.Tensor

    def run(self, index: int) -> torch.Tensor:
        return self.calls.run(index, self.calls.entering.get(index, self.hidden))


class BlockStream:
    """Texts of some languages on their way through a model's blocks. `weights` is by language; each language counts by it, however long its
    text is."""

    @torch.inference_mode()
    def __init__(self, model: LanguageModel, calibration: Calibration, weights: Mapping[str, float]) -> None:
        self.model = model
        self.blocks = [model.module.get_submodule(name) for name in model.anatomy.block_names]
        self.in_encoder = blocks_in_encoder(model)
        prepared: list[ScoredPassage] = []
        spoken: list[str] = []
        for code in weights:
            own = readings(model, calibration.texts[code], calibration.options)
            prepared += own
            spoken += [code] * len(own)
        parts = [
            ([spoken[owner] for owner in owners], sequences, read_masks(model, sequences))
            for owners, sequences in batches(prepared, batch_tokens(model))
        ]
        # An encoder reads other tokens than its decoder: each side is counted by itself.
        tokens: Counter[tuple[str, bool]] = Counter()
        for codes, _, masks in parts:
            for side, mask in masks.items():
                for code, count in zip(codes, mask.sum(1).tolist(), strict=True):
                    tokens[code, side] += count
        self.batches = []
        for codes, sequences, masks in parts:
            by_token = {
                side: mask * torch.tensor([[weights[c] / max(tokens[c, side], 1)] for c in codes], device=model.device)
                for side, mask in masks.items()
            }
            calls = BlockCalls(model, self.blocks, self.in_encoder, sequences)
            self.batches.append(_Batch(calls, by_token, calls.entering[0]))

    @torch.inference_mode()
    def second_moments(self, index: int, linears: list[LinearLayer]) -> dict[str, torch.Tensor]:
        """Σ_λ w_λ E_λ[xxᵀ] of the inputs of a block's layers, as the stream reaches it."""
        sums: dict[str, torch.Tensor] = {}
        for batch in self.batches:
            with _watching(linears, batch, self.in_encoder[index], sums):
                batch.run(index)
        return sums

    @torch.inference_mode()
    def advance(self, index: int) -> None:
        """Go on through block `index` as it is now."""
        for batch in self.batches:
            batch.hidden = batch.run(index)
            batch.calls.forget(index)


@contextmanager
def _watching(
    linears: list[LinearLayer], batch: _Batch, in_encoder: bool, sums: dict[str, torch.Tensor]
) -> Iterator[None]:
    last: list[Any] = [None, None]

    def hook_of(linear: LinearLayer) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            entering = inputs[0]
            # Query, key and value, or gate and up, read the same tensor: its moments are summed once.
            if last[0] is not entering:
                weights = mask_for(entering, batch.weights, in_encoder)
                rows = entering.reshape(len(weights), -1)[weights > 0].float()
                rows = rows * weights[weights > 0].sqrt()[:, None]
                last[:] = [entering, rows.T @ rows]
            sums[linear.name] = sums[linear.name] + last[1] if linear.name in sums else last[1]

        return hook

    handles = [linear.module.register_forward_hook(hook_of(linear)) for linear in linears]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
