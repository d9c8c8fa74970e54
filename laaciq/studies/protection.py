"""Losses when some blocks keep their original weights and all others are quantized, for many such sets of blocks at once.

Sets are visited as a tree of prefixes (block 0 protected or not, block 1 …), depth first. A block is run once for every distinct prefix:
about 1,000 times for the 220 sets of three blocks of twelve, instead of 2,640.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from laaciq.errors import BrokenModel
from laaciq.models import LanguageModel
from laaciq.models.offloading import BlockTensors, OffloadedBlocks
from laaciq.profiling.activations import blocks_in_encoder
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.model import quantize_layers
from laaciq.quantization.plan import Plan, TensorPlan
from laaciq.scoring.block_calls import BlockCalls
from laaciq.scoring.likelihood import batch_tokens, batches, target_losses
from laaciq.scoring.sequences import ScoredPassage, ScoredSequence
from laaciq.trials.quantized_copy import CandidateWeights, PackedBlocks

BlockSet = tuple[int, ...]
# Logits of a batch on a CPU. Below 32 MiB glibc reuses memory; above it, every batch of every set would need new pages, which takes as long
# as computing the logits.
_LOGITS_BYTES, _FEWEST_TOKENS = 28 * 2**20, 256


class ProtectableBlocks:
    """A model's blocks, each with its original or its quantized weights. Both are in memory, and are switched at no cost; with `packed`,
    quantized weights are packed, and a block's weights are fetched when it runs.
    """

    @torch.no_grad()
    def __init__(self, original: LanguageModel, plan: Plan, *, packed: bool = False) -> None:
        layers = quantize_layers(original, plan)
        self._switch = _FetchedBlocks(original, layers) if packed else _BlocksInMemory(original, layers)
        self.model = self._switch.model
        self.blocks: list[nn.Module] = self.model.blocks

    def put(self, index: int, *, protected: bool) -> None:
        self._switch.put(index, protected=protected)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Context manager: afterwards the model has its original weights, whatever happened."""
        try:
            yield
        finally:
            for index in range(len(self.blocks)):
                self.put(index, protected=True)

    @contextmanager
    def protecting(self, protected: BlockSet) -> Iterator[None]:
        """Context manager: all blocks except the `protected` are quantized."""
        with self.restored():
            for index in range(len(self.blocks)):
                self.put(index, protected=index in protected)
            yield


class _BlocksInMemory:
    """The original itself, whose parameters have other values while blocks are quantized."""

    def __init__(self, original: LanguageModel, layers: Iterator[tuple[TensorPlan, QuantizedMatrix]]) -> None:
        self.model = original
        linears = {linear.name: linear for linear in original.anatomy.linears}
        self._weights: list[list[tuple[nn.Parameter, torch.Tensor, torch.Tensor]]] = [[] for _ in original.blocks]
        for tensor, quantized in layers:
            linear = linears[tensor.name]
            parameter = linear.module.get_parameter("weight")
            rounded = quantized.dequantize(tensor).to(parameter.dtype)
            rounded = (rounded.t() if linear.transposed else rounded).contiguous()
            self._weights[linear.block].append((parameter, parameter.data, rounded))

    def put(self, index: int, *, protected: bool) -> None:
        for parameter, original, rounded in self._weights[index]:
            parameter.data = original if protected else rounded


class _FetchedBlocks:
    """A copy without block weights, which fetches those of the original or dequantized ones; a `BlockSource`."""

    def __init__(self, original: LanguageModel, layers: Iterator[tuple[TensorPlan, QuantizedMatrix]]) -> None:
        self._original, self._packed = original, PackedBlocks(original)
        self._protected = [True] * len(original.blocks)
        model = original.without_block_weights()
        self._packed.put(model, CandidateWeights(layers, exact=True))
        blocks = OffloadedBlocks(dict(enumerate(model.blocks)), self, original.device)
        self.model = replace(model, offloaded=blocks)

    def put(self, index: int, *, protected: bool) -> None:
        self._protected[index] = protected

    def fetch(self, index: int) -> BlockTensors:
        if not self._protected[index]:
            return self._packed.fetch(index)
        return self._original.block_tensors(index)


@torch.inference_mode()
def nll_by_set(
    blocks: ProtectableBlocks,
    prepared: list[ScoredPassage],
    sets: list[BlockSet],
    *,
    by_prefix: bool,
    advance: Callable[[int], None] = lambda tokens: None,
) -> np.ndarray:
    """Negative log-likelihood in nats, (sets, passages), with the blocks of each set protected. With all blocks protected it is the
    original.

    `by_prefix` is the result of `prefixes_suffice`. `advance` receives the scored tokens of every batch and set.
    """
    model = blocks.model
    walk = losses_by_prefix if by_prefix else losses_by_pass
    nll = np.zeros((len(sets), len(prepared)))
    most = batch_tokens(model)
    if model.device.type == "cpu":
        most = min(most, max(_FEWEST_TOKENS, _LOGITS_BYTES // (4 * model.vocabulary)))
    for owners, sequences in batches(prepared, most):
        rows = np.repeat(owners, [len(s.targets) for s in sequences])
        with blocks.restored():  # also where a walk is broken off
            for index, losses in walk(blocks, sequences, sets):
                np.add.at(nll[index], rows, losses.double().cpu().numpy())
                advance(len(rows))
    if not np.isfinite(nll).all():
        raise BrokenModel(f"{model.folder.name} gives NaN or infinite losses on these texts: it cannot be measured")
    return nll


@torch.inference_mode()
def prefixes_suffice(blocks: ProtectableBlocks, sequences: list[ScoredSequence]) -> bool:
    """True if blocks share nothing but hidden states, so that sets can share the blocks they begin with.

    Not in an encoder-decoder, whose decoder blocks read the encoder's output. For other models both ways are compared on a few tokens: the
    difference must be negligible beside the effect of quantization.
    """
    if blocks.model.kind == "encoder-decoder":
        return False
    every = tuple(range(len(blocks.blocks)))
    sets: list[BlockSet] = [(), every[:1], every[-1:], every]
    shared, whole = (dict(walk(blocks, sequences, sets)) for walk in (losses_by_prefix, losses_by_pass))
    effect = float((whole[0] - whole[len(sets) - 1]).abs().max())
    return all(float((shared[i] - whole[i]).abs().max()) <= 1e-3 + effect / 100 for i in range(len(sets)))


def losses_by_pass(
    blocks: ProtectableBlocks, sequences: list[ScoredSequence], sets: list[BlockSet]
) -> Iterator[tuple[int, torch.Tensor]]:
    """Position of each set, and −log p of every target: one pass of the whole model per set."""
    for position, protected in enumerate(sets):
        with blocks.protecting(protected):
            losses = target_losses(blocks.model, sequences)
        yield position, losses


def losses_by_prefix(
    blocks: ProtectableBlocks, sequences: list[ScoredSequence], sets: list[BlockSet]
) -> Iterator[tuple[int, torch.Tensor]]:
    """Like `losses_by_pass`, in another order; each block is run once per distinct prefix."""
    calls = BlockCalls(blocks.model, blocks.blocks, blocks_in_encoder(blocks.model), sequences)

    def walk(depth: int, hidden: torch.Tensor, members: list[int]) -> Iterator[tuple[int, torch.Tensor]]:
        if depth == len(blocks.blocks):
            losses = calls.losses(hidden)
            yield from ((position, losses) for position in members)
            return
        for protected in (True, False):
            if agreeing := [position for position in members if (depth in sets[position]) == protected]:
                blocks.put(depth, protected=protected)
                yield from walk(depth + 1, calls.run(depth, hidden), agreeing)

    with blocks.restored():
        yield from walk(0, calls.entering[0], list(range(len(sets))))


def prefix_count(sets: list[BlockSet], blocks: int) -> int:
    """Number of block runs in `losses_by_prefix`."""
    return len({(depth, tuple(b for b in protected if b <= depth)) for protected in sets for depth in range(blocks)})
