"""Which sequences run together when curvature is measured, so that each still has its own gradients.

On a CPU, one at a time: sums keep their order, and so their digits. On an accelerator, short sequences alone are mostly waiting: for
operations to start, and for the weights of offloaded blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch

from laaciq.models import Anatomy, LanguageModel
from laaciq.scoring.likelihood import batches, padded_width, tokens_per_batch
from laaciq.scoring.operations import ModelShape
from laaciq.scoring.sequences import ScoredPassage, ScoredSequence
from laaciq.trials.memory import working_bytes

# Inputs of a row per pool: they mostly share a scale, and so a mean squared error.
POOLED = 64
# If pools for all languages would exceed this, whole rows are pooled.
MOST_BYTES = 2**31
# Padded tokens of a batch on an accelerator. With more, hardly any operation would be faster.
MOST_TOKENS = 2048
# Bytes per logit of what the loss keeps for its gradient: the logits, in float32 too, and their gradients.
_LOGIT_BYTES = 12
# Numbers per token that a block keeps for gradients beside what its layers read, as multiples of its width and of its widest layer. What
# autograd saves in bfloat16 was counted: this is 1.8 times that of llama, 1.2 times that of Gemma 3, 0.8 times that of mT5.
_WIDTHS, _WIDEST = 20, 3


def sequence_batches(passages: list[ScoredPassage], most: int) -> Iterator[tuple[list[int], list[ScoredSequence]]]:
    """Sequences in batches of at most `most` padded tokens, with the passage that each belongs to. With 1, one by one in the order of the
    texts: the digits of a sum depend on it.
    """
    if most > 1:
        yield from batches(passages, most)
        return
    for owner, passage in enumerate(passages):
        yield from (([owner], [sequence]) for sequence in passage.sequences if sequence.targets)


def padded_tokens(sequences: list[ScoredSequence]) -> set[int]:
    """Tokens of a batch with padding: an encoder's, or a decoder's, or both."""
    sides = [[s.inputs for s in sequences], [s.decoder for s in sequences if s.decoder is not None]]
    return {len(rows) * padded_width(rows) for rows in sides if rows}


def are_separable(anatomy: Anatomy, names: Collection[str]) -> bool:
    """True if the gradients of the named matrices can be told apart by sequence. An expert reads tokens of all sequences mixed, and the
    gradient of a token matrix comes from autograd, for the whole batch.
    """
    if any(matrix.name in names for matrix in anatomy.token_matrices):
        return False
    return all(linear.expert is None for linear in anatomy.linears)


def usual_tokens(model: LanguageModel, languages: int) -> int:
    """Padded tokens of a batch for a model that is loaded."""
    if model.device.type == "cpu":
        return 1
    shape = ModelShape.of(model.kind, model.anatomy)
    return gradient_tokens(shape, languages, model.device, number_bytes=model.dtype.itemsize)


def gradient_tokens(shape: ModelShape, languages: int, device: torch.device, *, number_bytes: int) -> int:
    """Padded tokens of a batch: on an accelerator, what fits in the memory that is left beside weights if no block is offloaded. Where blocks
    are, there would be room for more; but digits depend on batches, and should not depend on where weights lie.
    """
    if device.type == "cpu":
        return 1
    room = working_bytes(shape, device, number_bytes) - sum_bytes(shape, languages)
    fitting = int(room / token_bytes(shape, number_bytes=number_bytes))
    return max(1, min(MOST_TOKENS, tokens_per_batch(shape.vocabulary, on_cpu=False), fitting))


def token_bytes(shape: ModelShape, *, number_bytes: int) -> int:
    """Memory per token until gradients are there: what all layers read, what is inside the blocks, logits."""
    read = sum(map(sum, shape.inputs)) + shape.blocks * shape.width
    inside = shape.blocks * (_WIDTHS * shape.width + _WIDEST * shape.widest)
    return number_bytes * (read + inside) + _LOGIT_BYTES * shape.vocabulary


def sum_bytes(shape: ModelShape, languages: int) -> float:
    """Memory of the sums, with room for as much again; of the gradient of the largest layer, and of its square."""
    sums = min(4 * shape.weights / POOLED * languages, MOST_BYTES)
    layer = max(outputs * inputs for block in shape.matrices for outputs, inputs in block)
    return 2 * sums + 16 * layer
