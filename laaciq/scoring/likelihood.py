"""Likelihood of passages under one model, or under two side by side, with the divergence between them.

Logits are never kept: with a vocabulary of 262,144 they take 1 MB per token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from laaciq.engine.failures import explained
from laaciq.errors import BrokenModel
from laaciq.models import LanguageModel
from laaciq.scoring.sequences import ScoredPassage, ScoredSequence

# Bound for one model and one batch, on a CPU and on an accelerator; sets the number of tokens per batch.
LOGITS_BYTES, ACCELERATOR_LOGITS_BYTES = 128 * 2**20, 2**31
# More tokens are no faster on an accelerator, and all blocks' outputs of a batch are in memory at times.
ACCELERATOR_TOKENS = 8192
# Fewest tokens per batch where no logits are computed: smaller products take longer per token.
READ_TOKENS = 1024
# Fewest rows of a matrix product. MKL splits the sums of 5 to 11 rows between threads, and they end in other digits for another number of them.
LEAST_ROWS = 12
# Logits compared at once, in float32 and per thread of a CPU: so few that they stay in its cache between one step and the next. With a
# vocabulary of 262,144 tokens, 4 rows at a time take a third of the time of 64. An accelerator compares enough rows to be busy.
COMPARED_BYTES, FEWEST_COMPARED, ACCELERATOR_COMPARED = 2**21, 4, 64


@dataclass(frozen=True)
class Scores:
    """Sums per passage, in nats and tokens: negative log-likelihood under each model, KL(original ‖ quantized), equal top tokens."""

    tokens: np.ndarray
    original_nll: np.ndarray
    quantized_nll: np.ndarray
    kl: np.ndarray
    agreed: np.ndarray

    def at(self, passages: slice) -> Scores:
        """The scores of some passages."""
        return Scores(*(getattr(self, field.name)[passages] for field in fields(self)))


def bits_per_byte(nats: float, byte_count: int) -> float:
    return nats / math.log(2) / byte_count


def batch_tokens(model: LanguageModel) -> int:
    """Padded tokens in a batch, so that its logits stay within bounds."""
    on_cpu = model.device.type == "cpu"
    return tokens_per_batch(model.vocabulary, on_cpu=on_cpu)


def read_tokens(model: LanguageModel) -> int:
    """Padded tokens in a batch that is read without logits."""
    return max(READ_TOKENS, batch_tokens(model))


def tokens_per_batch(vocabulary: int, *, on_cpu: bool) -> int:
    if on_cpu:
        return max(64, LOGITS_BYTES // (4 * vocabulary))
    return max(64, min(ACCELERATOR_TOKENS, ACCELERATOR_LOGITS_BYTES // (4 * vocabulary)))


def score(
    original: LanguageModel,
    quantized: LanguageModel,
    passages: list[ScoredPassage],
    *,
    most_tokens: int | None = None,
    known: Callable[[list[ScoredSequence]], torch.Tensor] | None = None,
    advance: Callable[[int], None] = lambda tokens: None,
) -> Scores:
    """Score the same tokens under both models. `known` gives the original's logits where it need not run for them. `advance` receives the
    number of scored tokens of every batch.
    """
    return score_each(original, [quantized], passages, most_tokens=most_tokens, known=known, advance=advance)[0]


@torch.inference_mode()
def score_each(
    original: LanguageModel,
    quantized: Sequence[LanguageModel],
    passages: list[ScoredPassage],
    *,
    most_tokens: int | None = None,
    known: Callable[[list[ScoredSequence]], torch.Tensor] | None = None,
    advance: Callable[[int], None] = lambda tokens: None,
) -> list[Scores]:
    """As `score`, for several quantized models beside one pass of the original."""
    sums = np.zeros((len(quantized), 5, len(passages)))
    for owners, sequences in batches(passages, most_tokens or batch_tokens(original)):
        left = target_logits(original, sequences) if known is None else known(sequences)
        targets = torch.tensor([t for s in sequences for t in s.targets], device=left.device)
        rows = np.repeat(owners, [len(s.targets) for s in sequences])
        for totals, model in zip(sums, quantized, strict=True):
            right = target_logits(model, sequences)
            if len(targets) and int(targets.max()) >= min(left.shape[1], right.shape[1]):
                raise BrokenModel(
                    f"{model.folder.name} has no logit for token {int(targets.max())}, which {original.folder.name} has: they are no pair"
                )
            parts = compared_parts(left, right, targets)
            for index, values in enumerate(zip(*(_compare(*part) for part in parts), strict=True)):
                np.add.at(totals[index], rows, torch.cat(values).double().cpu().numpy())
        advance(len(rows))
    for totals, model in zip(sums, quantized, strict=True):
        if not np.isfinite(totals[[1, 2]]).all():
            culprit = original if not np.isfinite(totals[1]).all() else model
            raise BrokenModel(
                f"{culprit.folder.name} gives NaN or infinite losses on these texts: it cannot be measured"
            )
    return [Scores(*totals) for totals in sums]


@torch.inference_mode()
def nll_by_passage(
    model: LanguageModel, prepared: list[ScoredPassage], *, advance: Callable[[int], None] = lambda tokens: None
) -> np.ndarray:
    """Negative log-likelihood of every passage in nats. `advance` receives the number of scored tokens of every batch."""
    nll = np.zeros(len(prepared))
    for owners, sequences in batches(prepared, batch_tokens(model)):
        losses = target_losses(model, sequences).double().cpu().numpy()
        np.add.at(nll, np.repeat(owners, [len(s.targets) for s in sequences]), losses)
        advance(len(losses))
    if not np.isfinite(nll).all():
        raise BrokenModel(f"{model.folder.name} gives NaN or infinite losses on these texts: it cannot be measured")
    return nll


def compared_rows(vocabulary: int, *, on_cpu: bool) -> int:
    """Rows of logits that are compared at once. Every row is computed alone: their number changes no result."""
    if not on_cpu:
        return ACCELERATOR_COMPARED
    return max(FEWEST_COMPARED, torch.get_num_threads() * COMPARED_BYTES // (4 * vocabulary))


def compared_parts(logits: torch.Tensor, *others: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The same few rows of all tensors at a time."""
    rows = compared_rows(logits.shape[1], on_cpu=logits.device.type == "cpu")
    return zip(*(tensor.split(rows) for tensor in (logits, *others)), strict=True)


def _compare(left: torch.Tensor, right: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Count, both losses, KL and top agreement of each target, from the two models' logits."""
    # One of the models may have rows for tokens that no text has, to fill up its vocabulary: the others are compared.
    common = min(left.shape[1], right.shape[1])
    left, right = left[:, :common].float(), right[:, :common].float()
    left_total, right_total = left.logsumexp(-1), right.logsumexp(-1)
    left_nll = left_total - left.gather(1, targets[:, None])[:, 0]
    right_nll = right_total - right.gather(1, targets[:, None])[:, 0]
    agreed = left.argmax(-1) == right.argmax(-1)
    # Σ p (log p − log q), with both normalisers taken out of the sum.
    probability = (left - left_total[:, None]).exp_()
    kl = (probability * (left - right)).sum(-1) - left_total + right_total
    return torch.ones_like(left_nll), left_nll, right_nll, kl.clamp_min(0), agreed


def target_losses(model: LanguageModel, sequences: list[ScoredSequence]) -> torch.Tensor:
    """−log p of each target, in nats."""
    logits = target_logits(model, sequences)
    targets = torch.tensor([t for s in sequences for t in s.targets], device=logits.device)
    return torch.cat([_losses(*part) for part in compared_parts(logits, targets)])


def _losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    # Converted once, so that the gradient p − 1 of a likely token is rounded to the type of the logits after the subtraction.
    wide = logits.float()
    return wide.logsumexp(-1) - wide.gather(1, targets[:, None])[:, 0]


def batches(passages: list[ScoredPassage], most: int) -> Iterator[tuple[list[int], list[ScoredSequence]]]:
    """Sequences of similar length together, with the passage that each belongs to."""
    pool = [(owner, s) for owner, passage in enumerate(passages) for s in passage.sequences if s.targets]
    pool.sort(key=lambda item: (len(item[1].inputs), len(item[1].decoder or ())))
    batch: list[tuple[int, ScoredSequence]] = []
    for item in pool:
        if batch and (len(batch) + 1) * len(item[1]) > most:
            yield [owner for owner, _ in batch], [s for _, s in batch]
            batch = []
        batch.append(item)
    if batch:
        yield [owner for owner, _ in batch], [s for _, s in batch]


def target_logits(model: LanguageModel, sequences: list[ScoredSequence]) -> torch.Tensor:
    """The logits that score each target, one row per target, in the type in which the model computes them."""
    return _logits_at(model, sequences, *target_positions(model, sequences))


def target_positions(model: LanguageModel, sequences: list[ScoredSequence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column, in a batch of these sequences, of the logits that score each target."""
    row = torch.tensor([i for i, s in enumerate(sequences) for _ in s.positions], device=model.device)
    column = torch.tensor([p for s in sequences for p in s.positions], device=model.device)
    return row, column


def read_through(model: LanguageModel, sequences: list[ScoredSequence]) -> None:
    """Run the model for the hooks on its layers, without logits."""
    nowhere = torch.zeros(0, dtype=torch.long, device=model.device)
    _logits_at(model, sequences, nowhere, nowhere)


def _logits_at(
    model: LanguageModel, sequences: list[ScoredSequence], row: torch.Tensor, column: torch.Tensor
) -> torch.Tensor:
    """Logits at (row, column). The head receives these tokens only, because selecting from all logits of a padded batch would copy them. If a
    model has no separate head, its logits are selected afterwards."""
    inputs = predicting = pad_right([s.inputs for s in sequences], model.device)
    arguments: dict[str, Any] = {"input_ids": inputs[0], "attention_mask": inputs[1]}
    if sequences[0].decoder is not None:
        predicting = pad_right([s.decoder or [] for s in sequences], model.device)
        arguments |= {"decoder_input_ids": predicting[0], "decoder_attention_mask": predicting[1]}
    if model.kind != "masked":
        arguments["use_cache"] = False
    head = model.module.get_output_embeddings()
    selected = False
    # The last ones are repeated where there are few.
    enough = torch.arange(max(len(row), LEAST_ROWS), device=row.device).clamp_max(len(row) - 1) if len(row) else row

    def select(module: Any, entering: tuple[torch.Tensor]) -> torch.Tensor | None:
        nonlocal selected
        selected = entering[0].shape[:-1] == predicting[0].shape
        return entering[0][row[enough], column[enough]][None] if selected else None

    handle = None if head is None else head.register_forward_pre_hook(select)
    try:
        with _model_errors(model):
            logits = model.module(**arguments).logits
    finally:
        if handle is not None:
            handle.remove()
    if not selected:
        return logits[row, column]
    # A view without a selection: the gradient of one is filled up with zeros to the size of all logits.
    flat = logits.flatten(0, 1)
    return flat if len(flat) == len(row) else flat[: len(row)]


@contextmanager
def _model_errors(model: LanguageModel) -> Iterator[None]:
    """Context manager: unless memory is short, what a model's code raises is the fault of its files."""
    try:
        yield
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        if explained(error) is not None:
            raise
        raise BrokenModel(
            f"transformers cannot run {model.folder.name} ({type(error).__name__}: {error}): its configuration may not fit its weights; "
            "copy it again"
        ) from error


def pad_right(lists: list[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids and their mask. Any id may pad: no position attends to it, and it is not scored."""
    width = padded_width(lists)
    ids = torch.zeros(len(lists), width, dtype=torch.long)
    mask = torch.zeros(len(lists), width, dtype=torch.long)
    for row, tokens in enumerate(lists):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = 1
    return ids.to(device), mask.to(device)


def padded_width(rows: Sequence[Sequence[object]]) -> int:
    """Positions of a batch: those of its longest sequence, and more where that gives fewer than `LEAST_ROWS` tokens."""
    return max(*map(len, rows), -(-LEAST_ROWS // len(rows)))
