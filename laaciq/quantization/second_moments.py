"""Second moments E[xxᵀ] of the inputs of linear layers: for rounding, for scales, for predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from laaciq.models import LanguageModel, LinearLayer
from laaciq.profiling.activations import read_masks
from laaciq.scoring.likelihood import batches, read_tokens
from laaciq.scoring.sequences import ScoredPassage, ScoredSequence

# Weight of every token of a batch, (rows, positions), zero on padding: under True for an encoder, under False for all else.
TokenWeights = dict[bool, torch.Tensor]


@dataclass(frozen=True)
class SecondMoments:
    """Second moments of a layer's inputs. `moments` is E[x̂x̂ᵀ] of the present inputs; `cross` is E[xx̂ᵀ] with x the inputs in the
    original, None if both are the same or the original is not run. `tokens` is their number.
    """

    moments: torch.Tensor
    cross: torch.Tensor | None = None
    tokens: int = 0

    def __add__(self, other: SecondMoments) -> SecondMoments:
        both = None if self.cross is None or other.cross is None else self.cross + other.cross
        return SecondMoments(self.moments + other.moments, both, self.tokens + other.tokens)


@dataclass(frozen=True)
class _Addition:
    """What was added last: the second moments of these `inputs`, and the sum `before` and `after` it of the layer that read them first."""

    inputs: torch.Tensor
    moments: SecondMoments
    before: SecondMoments | None
    after: SecondMoments


class MomentSums:
    """Adds up second moments, layer by layer and batch by batch. Layers that read the same inputs in every batch share one sum, the same
    object.
    """

    def __init__(self) -> None:
        self.by_layer: dict[str, SecondMoments] = {}
        self._last: _Addition | None = None

    def add(
        self, layer: LinearLayer, inputs: torch.Tensor, weights: torch.Tensor, original: torch.Tensor | None = None
    ) -> None:
        """Add inputs. `weights` are by token, flat; `original` holds the inputs of the same tokens in the original model."""
        before, last = self.by_layer.get(layer.name), self._last
        # Query, key and value, or gate and up, read the same tensor: its moments are computed and added once.
        if last is None or last.inputs is not inputs:
            rows = _weighted(inputs, weights)
            cross = None if original is None else _product(_weighted(original, weights), rows)
            moments = SecondMoments(_product(rows, rows), cross, len(rows))
            last = self._last = _Addition(inputs, moments, before, _sum(before, moments))
        self.by_layer[layer.name] = last.after if before is last.before else _sum(before, last.moments)


def _sum(before: SecondMoments | None, added: SecondMoments) -> SecondMoments:
    return added if before is None else before + added


def _weighted(inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Rows √w·x of the tokens with positive weight. Those of a model in bfloat16 stay in it: their products are faster, and what rounding adds
    averages out over tokens.
    """
    # An index by number: one by mask makes a GPU wait whenever it is used.
    chosen = (weights > 0).nonzero()[:, 0]
    rows = inputs.reshape(len(weights), -1)[chosen].float() * weights[chosen].sqrt()[:, None]
    return rows.to(torch.bfloat16) if inputs.dtype == torch.bfloat16 else rows


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Σ x x̂ᵀ over rows, in float32."""
    if left.dtype != torch.float32 and left.is_cuda:
        return torch.mm(left.T, right, out_dtype=torch.float32)
    return (left.T @ right).float()


def token_weights(
    model: LanguageModel, batched: Sequence[tuple[list[str], list[ScoredSequence]]], weights: Mapping[str, float]
) -> list[TokenWeights]:
    """Token weights for every batch of (language of each row, sequences). A language counts by its weight, not by the length of its text."""
    masks = [read_masks(model, sequences) for _, sequences in batched]
    # An encoder reads other tokens than its decoder, so each side is counted separately.
    tokens: Counter[tuple[str, bool]] = Counter()
    for (codes, _), sides in zip(batched, masks, strict=True):
        for side, mask in sides.items():
            for code, count in zip(codes, mask.sum(1).tolist(), strict=True):
                tokens[code, side] += count
    return [
        {
            side: mask * torch.tensor([[weights[c] / max(tokens[c, side], 1)] for c in codes], device=model.device)
            for side, mask in sides.items()
        }
        for (codes, _), sides in zip(batched, masks, strict=True)
    ]


def batched_by_language(
    model: LanguageModel, passages: Mapping[str, list[ScoredPassage]]
) -> list[tuple[list[str], list[ScoredSequence]]]:
    """Batches of sequences of similar length, with the language of each sequence."""
    pool = [(code, passage) for code, prepared in passages.items() for passage in prepared]
    return [
        ([pool[owner][0] for owner in owners], sequences)
        for owners, sequences in batches([passage for _, passage in pool], read_tokens(model))
    ]


@contextmanager
def watched(layers: list[LinearLayer], see: Callable[[LinearLayer, torch.Tensor], None]) -> Iterator[None]:
    """Context manager: `see` is called with every layer's inputs."""

    def hook_of(layer: LinearLayer) -> Any:
        return lambda module, inputs, output: see(layer, inputs[0])

    handles = [layer.module.register_forward_hook(hook_of(layer)) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
