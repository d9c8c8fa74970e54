"""Calibration block by block: every block reads the output of the quantized blocks before it.

The calls of all blocks are recorded first. After that only blocks are run, on hidden states that are kept for one block at a time. If
inputs are compared with the original's, those are kept too. In an encoder-decoder the decoder reads the original encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from laaciq.engine.fast_products import fast_products
from laaciq.models import LanguageModel, LinearLayer
from laaciq.models.experts import same_tokens
from laaciq.profiling.activations import blocks_in_encoder, mask_for, prepare_whole
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.second_moments import (
    MomentSums,
    SecondMoments,
    TokenWeights,
    batched_by_language,
    token_weights,
    watched,
)
from laaciq.scoring.block_calls import BlockCalls


@dataclass
class _Batch:
    """The calls of one batch, the weights of its tokens, and its hidden states: with quantized blocks, and in the original."""

    calls: BlockCalls
    weights: TokenWeights
    hidden: torch.Tensor
    original: torch.Tensor

    def run(self, index: int, *, original: bool = False) -> torch.Tensor:
        hidden = self.original if original else self.hidden
        return self.calls.run(index, self.calls.entering.get(index, hidden))


class BlockStream:
    """Texts of several languages on their way through a model's blocks. A language counts by its weight, not by the length of its text.
    With `beside_original` the texts also pass through the original blocks.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: LanguageModel,
        calibration: Calibration,
        weights: Mapping[str, float],
        *,
        beside_original: bool = False,
    ) -> None:
        self.model, self.beside_original = model, beside_original
        self.blocks = model.blocks
        self.in_encoder = blocks_in_encoder(model)
        passages = {code: prepare_whole(model, calibration.texts[code], calibration.options) for code in weights}
        batched = batched_by_language(model, passages)
        self.batches = []
        for (_, sequences), by_side in zip(batched, token_weights(model, batched, weights), strict=True):
            calls = BlockCalls(model, self.blocks, self.in_encoder, sequences)
            self.batches.append(_Batch(calls, by_side, calls.entering[0], calls.entering[0]))

    @torch.inference_mode()
    @fast_products()
    def second_moments(self, index: int, layers: list[LinearLayer], *, leave: bool = False) -> dict[str, SecondMoments]:
        """Σ_λ w_λ E_λ of the inputs of a block's layers. The block's weights are still the original's. With `leave`, the texts then leave the
        block.
        """
        sums = MomentSums()
        for batch in self.batches:
            # Inputs that come from no block are the same for both.
            beside = self.beside_original and index not in batch.calls.entering
            originals: dict[str, torch.Tensor] = {}

            def note(layer: LinearLayer, inputs: torch.Tensor, seen: dict[str, torch.Tensor] = originals) -> None:
                seen[layer.name] = inputs

            def add(
                layer: LinearLayer,
                inputs: torch.Tensor,
                weights: TokenWeights = batch.weights,
                seen: dict[str, torch.Tensor] = originals,
            ) -> None:
                by_token = mask_for(inputs, weights, self.in_encoder[index])
                sums.add(layer, inputs, by_token, same_tokens(seen.get(layer.name), inputs) if seen else None)

            if beside:
                with watched(layers, note):
                    batch.original = batch.run(index, original=True)
            with watched(layers, add):
                leaving = batch.run(index)
            if self.beside_original and not beside:
                batch.original = leaving
            if leave:
                batch.hidden = leaving
                batch.calls.forget(index)
        return sums.by_layer

    @torch.inference_mode()
    def pass_through(self, index: int, layers: list[LinearLayer]) -> dict[str, SecondMoments]:
        """As `second_moments`, and pass the texts through the block, whose weights do not change."""
        return self.second_moments(index, layers, leave=True)

    @torch.inference_mode()
    def advance(self, index: int) -> None:
        """Pass the texts through block `index` with its present weights."""
        for batch in self.batches:
            batch.hidden = batch.run(index)
            batch.calls.forget(index)

    @torch.inference_mode()
    def advance_original(self, index: int) -> None:
        """Pass the original's texts through block `index`, whose weights are still the original's: for a block that is rounded already."""
        for batch in self.batches if self.beside_original else ():
            batch.original = batch.run(index, original=True)
