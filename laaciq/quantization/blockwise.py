"""Calibration block by block: every block sees what the blocks before it, already quantized, make of the text.

How each block is called is noted first; from then on only blocks are run, on hidden states that are kept for one block at a time, those of
the original beside them where somebody compares. In an encoder-decoder the decoder hears the original encoder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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


@dataclass(frozen=True)
class SecondMoments:
    """Of a layer's inputs: `own` is E[x̂x̂ᵀ] of what reaches it, `crossed` E[xx̂ᵀ] with x what reached it in the original; None where they are
    the same, or nobody asked."""

    own: torch.Tensor
    crossed: torch.Tensor | None = None

    def __add__(self, other: SecondMoments) -> SecondMoments:
        both = None if self.crossed is None or other.crossed is None else self.crossed + other.crossed
        return SecondMoments(self.own + other.own, both)


@dataclass
class _Batch:
    """The calls of one batch, what each token counts there (padding nothing), and how far it has come, as quantized and as the original."""

    calls: BlockCalls
    weights: dict[bool, torch.Tensor]
    hidden: torch.Tensor
    original: torch.Tensor

    def run(self, index: int, *, original: bool = False) -> torch.Tensor:
        hidden = self.original if original else self.hidden
        return self.calls.run(index, self.calls.entering.get(index, hidden))


class BlockStream:
    """Texts of some languages on their way through a model's blocks. `weights` is by language; each language counts by it, however long its
    text is. With `beside_original` the texts also go through the blocks as they were."""

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
            self.batches.append(_Batch(calls, by_token, calls.entering[0], calls.entering[0]))

    @torch.inference_mode()
    def second_moments(self, index: int, linears: list[LinearLayer]) -> dict[str, SecondMoments]:
        """Σ_λ w_λ E_λ of the inputs of a block's layers, as the stream reaches it. The block is the original's still."""
        sums: dict[str, SecondMoments] = {}
        for batch in self.batches:
            # What no block made is the same for both.
            beside = self.beside_original and index not in batch.calls.entering
            originals: dict[str, torch.Tensor] = {}
            if beside:
                with _hooked(linears, _noting(originals)):
                    batch.original = batch.run(index, original=True)
            with _hooked(linears, _summing(sums, originals, batch, self.in_encoder[index])):
                leaving = batch.run(index)
            if self.beside_original and not beside:
                batch.original = leaving
        return sums

    @torch.inference_mode()
    def advance(self, index: int) -> None:
        """Go on through block `index` as it is now."""
        for batch in self.batches:
            batch.hidden = batch.run(index)
            batch.calls.forget(index)


def _noting(seen: dict[str, torch.Tensor]) -> Callable[[LinearLayer, torch.Tensor], None]:
    return lambda linear, entering: seen.update({linear.name: entering})


def _summing(
    sums: dict[str, SecondMoments], originals: Mapping[str, torch.Tensor], batch: _Batch, in_encoder: bool
) -> Callable[[LinearLayer, torch.Tensor], None]:
    last: list[Any] = [None, None]

    def add(linear: LinearLayer, entering: torch.Tensor) -> None:
        # Query, key and value, or gate and up, read the same tensor: its moments are summed once.
        if last[0] is not entering:
            weights = mask_for(entering, batch.weights, in_encoder)

            def rows(inputs: torch.Tensor) -> torch.Tensor:
                chosen = inputs.reshape(len(weights), -1)[weights > 0].float()
                return chosen * weights[weights > 0].sqrt()[:, None]

            own, original = rows(entering), originals.get(linear.name)
            last[:] = [entering, SecondMoments(own.T @ own, None if original is None else rows(original).T @ own)]
        sums[linear.name] = sums[linear.name] + last[1] if linear.name in sums else last[1]

    return add


@contextmanager
def _hooked(linears: list[LinearLayer], see: Callable[[LinearLayer, torch.Tensor], None]) -> Iterator[None]:
    """Within, `see` is told of every layer's inputs."""

    def hook_of(linear: LinearLayer) -> Any:
        return lambda module, inputs, output: see(linear, inputs[0])

    handles = [linear.module.register_forward_hook(hook_of(linear)) for linear in linears]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
