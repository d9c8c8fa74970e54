"""How a language uses a model's blocks: activations and loss from one pass over its text.

Only tokens of the text count: start tokens, padding and, for norms, attention sinks are left out. So no figure depends on the length of the
passages or on batching. A *sink* is a position whose norm, in any block, is more than ten times the passage's median there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from laaciq.corpus import Passages
from laaciq.errors import BrokenModel
from laaciq.models import LanguageModel
from laaciq.models.experts import routed_tokens
from laaciq.options import MeasureOptions
from laaciq.profiling.redundancy import FoldedTokens
from laaciq.scoring.likelihood import batch_tokens, batches, padded_width, target_losses
from laaciq.scoring.sequences import ScoredPassage, ScoredSequence, prepare_all, start_tokens

SINK_FACTOR = 10.0


@dataclass
class Activations:
    """Sums over one language's text. Means follow by division; see `laaciq.profiling.results.LanguageActivations`."""

    tokens: int = 0
    sinks: int = 0
    norm_sums: np.ndarray = field(default_factory=lambda: np.zeros(0))
    norm_tokens: np.ndarray = field(default_factory=lambda: np.zeros(0))
    sink_norm_sums: np.ndarray = field(default_factory=lambda: np.zeros(0))
    output_norm_sums: dict[str, float] = field(default_factory=dict)
    input_square_sums: dict[str, np.ndarray] = field(default_factory=dict)
    linear_tokens: dict[str, int] = field(default_factory=dict)
    passage_sums: np.ndarray = field(default_factory=lambda: np.zeros(0))
    passage_tokens: np.ndarray = field(default_factory=lambda: np.zeros(0))
    last_block: FoldedTokens | None = None
    nll: float | None = None
    scored_bytes: int = 0

    @property
    def norms(self) -> np.ndarray:
        """a_l = E‖h_l‖."""
        return self.norm_sums / self.norm_tokens

    @property
    def passage_vectors(self) -> np.ndarray:
        """Mean of each block's output over a passage's tokens, sinks left out: (blocks, passages, width)."""
        return self.passage_sums / np.maximum(self.passage_tokens, 1)[..., None]


@torch.inference_mode()
def collect(
    model: LanguageModel,
    passages: Passages,
    options: MeasureOptions,
    *,
    advance: Callable[[int], None] = lambda tokens: None,
) -> Activations:
    """Activations and loss of one language, from one pass with hooks on every block and linear layer."""
    prepared = prepare_whole(model, passages, options)
    collector = _Collector(model, passages)
    nll = 0.0
    with collector.watching():
        for owners, sequences in batches(prepared, batch_tokens(model)):
            collector.begin(owners, sequences)
            losses = target_losses(model, sequences)
            nll += losses.double().sum().item()
            collector.end()
            advance(len(losses))
    activations = collector.activations
    activations.scored_bytes = sum(passage.scored_bytes for passage in prepared)
    # A masked model sees the whole text here, so nothing is predicted.
    activations.nll = None if model.kind == "masked" else nll
    return activations


def prepare_whole(model: LanguageModel, passages: Passages, options: MeasureOptions) -> list[ScoredPassage]:
    """Prepared passages in which a masked model sees the whole text. For other models the same as `prepare_all`."""
    if model.kind != "masked":
        return prepare_all(model, passages, options)
    before = len(start_tokens(model.tokenizer))
    longest = min(options.window or model.longest or 512, model.longest or 512)
    prepared = []
    for text in passages.texts:
        ids = model.tokenizer(text, truncation=True, max_length=longest)["input_ids"]
        body = range(before, len(ids) - 1)
        # Position p − 1, as for a causal model, so that the hooks see the token at p.
        prepared.append(ScoredPassage([ScoredSequence(ids, [p - 1 for p in body], [ids[p] for p in body])], 0))
    return prepared


class _Collector:
    """Hooks on blocks and linear layers that sum activations."""

    def __init__(self, model: LanguageModel, passages: Passages) -> None:
        self.model = model
        self.blocks = model.blocks
        self.in_encoder = blocks_in_encoder(model)
        self.activations = Activations()
        # An expert may read no token of a language.
        for linear in model.anatomy.linears:
            if linear.expert is not None:
                self.activations.input_square_sums[linear.name] = np.zeros(linear.shape[1])
                self.activations.output_norm_sums[linear.name] = 0.0
                self.activations.linear_tokens[linear.name] = 0
        self.passages = passages
        self.states: dict[int, torch.Tensor] = {}
        self.last_input: tuple[torch.Tensor, np.ndarray, int] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles = [block.register_forward_hook(self._block_hook(index)) for index, block in enumerate(self.blocks)]
        handles += [
            linear.module.register_forward_hook(self._linear_hook(linear.name, self.in_encoder[linear.block]))
            for linear in self.model.anatomy.linears
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def begin(self, owners: list[int], sequences: list[ScoredSequence]) -> None:
        self.owners = owners
        self.states.clear()
        self.last_input = None
        self.masks = text_masks(self.model, sequences)

    def _block_hook(self, index: int) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            self.states[index] = output[0] if isinstance(output, tuple) else output

        return hook

    def _linear_hook(self, name: str, in_encoder: bool) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: torch.Tensor) -> None:
            entering = inputs[0]
            mask = mask_for(entering, self.masks, in_encoder)
            # Query, key and value, or gate and up, read the same tensor: its squares are summed once.
            if self.last_input is None or self.last_input[0] is not entering:
                squares = mask @ entering.reshape(len(mask), -1).float().square()
                self.last_input = (entering, squares.double().cpu().numpy(), int(mask.sum()))
            _, squares, count = self.last_input
            leaving = (mask @ output.reshape(len(mask), -1).float().norm(dim=-1)).item()
            sums = self.activations
            sums.input_square_sums[name] = sums.input_square_sums.get(name, 0.0) + squares
            sums.output_norm_sums[name] = sums.output_norm_sums.get(name, 0.0) + leaving
            sums.linear_tokens[name] = sums.linear_tokens.get(name, 0) + count

        return hook

    def end(self) -> None:
        """Add a batch's block outputs. Sinks are known only after all blocks have run."""
        total, blocks = self.activations, len(self.blocks)
        if not len(total.norm_sums):
            width = self.states[0].shape[-1]
            total.norm_sums, total.norm_tokens, total.sink_norm_sums = (
                np.zeros(blocks),
                np.zeros(blocks),
                np.zeros(blocks),
            )
            total.passage_sums = np.zeros((blocks, len(self.passages), width), dtype=np.float32)
            total.passage_tokens = np.zeros((blocks, len(self.passages)), dtype=np.float32)
            total.last_block = FoldedTokens(width, device=self.model.device)
        # Encoder and decoder read different positions; all other models have one mask, under False.
        for side, mask in self.masks.items():
            members = [index for index in self.states if self.in_encoder[index] == side]
            norms = torch.stack([self.states[index].float().norm(dim=-1) for index in members])
            sink = _sinks(norms, mask)
            plain = (mask & ~sink).float()
            if not side and total.last_block is not None:
                total.tokens += int(mask.sum())
                total.sinks += int(sink.sum())
                for row, owner in enumerate(self.owners):
                    rows = self.states[blocks - 1][row][plain[row] > 0].float()
                    total.last_block.add(self.passages.documents[owner], rows)
            for row, index in enumerate(members):
                total.norm_sums[index] += (norms[row] * plain).sum().item()
                total.norm_tokens[index] += plain.sum().item()
                total.sink_norm_sums[index] += (norms[row] * sink).sum().item()
                sums = torch.einsum("btw,bt->bw", self.states[index].float(), plain)
                np.add.at(total.passage_sums[index], self.owners, sums.cpu().numpy())
                np.add.at(total.passage_tokens[index], self.owners, plain.sum(1).cpu().numpy())


def blocks_in_encoder(model: LanguageModel) -> list[bool]:
    encoder = model.module.get_encoder() if model.kind == "encoder-decoder" else None
    inside = {id(m) for m in encoder.modules()} if encoder is not None else set()
    return [id(model.module.get_submodule(name)) in inside for name in model.anatomy.block_names]


def text_masks(model: LanguageModel, sequences: list[ScoredSequence]) -> dict[bool, torch.Tensor]:
    """Masks of the tokens of the text in a batch, (rows, positions): under True for an encoder, under False for all else."""
    device = model.device
    if sequences[0].decoder is None:
        read = [[p + 1 for p in s.positions] for s in sequences]
        return {False: _mask(read, [s.inputs for s in sequences], device)}
    special = set(model.tokenizer.all_special_ids)
    plain = [[i for i, token in enumerate(s.inputs) if token not in special] for s in sequences]
    read = [[p + 1 for p in s.positions if p + 1 < len(s.decoder or [])] for s in sequences]
    return {
        True: _mask(plain, [s.inputs for s in sequences], device),
        False: _mask(read, [s.decoder or [] for s in sequences], device),
    }


def read_masks(model: LanguageModel, sequences: list[ScoredSequence]) -> dict[bool, torch.Tensor]:
    """Like `text_masks`, with start tokens. Later tokens attend to start tokens strongly, and their norms are the largest, so fitting
    weights must include them.
    """
    sides = {False: [s.inputs for s in sequences]}
    if sequences[0].decoder is not None:
        sides = {True: sides[False], False: [s.decoder or [] for s in sequences]}
    return {side: _mask([range(len(row)) for row in rows], rows, model.device) for side, rows in sides.items()}


def mask_for(entering: torch.Tensor, masks: dict[bool, torch.Tensor], in_encoder: bool) -> torch.Tensor:
    """The mask in `masks` for a linear layer's input. Cross-attention in a decoder reads the encoder's tokens, and an expert those that the
    router sends it.
    """
    if (tokens := routed_tokens(entering)) is not None:
        return masks[in_encoder].reshape(-1)[tokens].float()
    sizes = {side: mask.numel() for side, mask in masks.items()}
    side = in_encoder if sizes[in_encoder] == entering[..., 0].numel() else not in_encoder
    if sizes.get(side) != entering[..., 0].numel():
        raise BrokenModel(
            "a linear layer of this model reads some tokens of a text, and which ones is unknown: experts of this kind are not supported"
        )
    return masks[side].reshape(-1).float()


def _mask(positions: Sequence[Sequence[int]], rows: list[list[int]], device: torch.device) -> torch.Tensor:
    mask = torch.zeros(len(rows), padded_width(rows), dtype=torch.bool)
    for row, chosen in enumerate(positions):
        mask[row, chosen] = True
    return mask.to(device)


def _sinks(norms: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mask of positions with an outlying norm in any block, compared with the passage's median; `norms` is (blocks, rows, positions)."""
    masked = norms.masked_fill(~mask, float("nan"))
    median = masked.nanmedian(dim=-1, keepdim=True).values
    return ((norms > SINK_FACTOR * median) & mask).any(0)
