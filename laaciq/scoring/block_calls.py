"""Running a model's blocks one at a time. The arguments of each block are recorded for a batch; then any block can be run on other hidden
states, and so can what follows the last block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import nn

from laaciq.models import LanguageModel
from laaciq.scoring.likelihood import read_through, target_losses
from laaciq.scoring.sequences import ScoredSequence


class _AllRecorded(Exception):
    """All blocks have been called: the rest of the forward pass is not needed."""


class BlockCalls:
    """The calls of one batch. `entering` holds the hidden states that come from no block, by the index of the block that they enter: the
    embeddings, and in an encoder-decoder those of both sides."""

    @torch.inference_mode()
    def __init__(
        self, model: LanguageModel, blocks: list[nn.Module], in_encoder: list[bool], sequences: list[ScoredSequence]
    ) -> None:
        self.model, self.blocks, self.sequences = model, blocks, sequences
        self.entering: dict[int, torch.Tensor] = {}
        self._calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        # By block: what it returned beside hidden states in its last run; see `split_output`.
        self._beside: dict[int, tuple[Any, ...] | None] = {}

        def record(module: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            index = len(self._calls)
            if not index or in_encoder[index] != in_encoder[index - 1]:
                self.entering[index] = arguments[0] if arguments else options["hidden_states"]
            self._calls.append(_with_hidden(arguments, options, None))
            if len(self._calls) == len(blocks):
                raise _AllRecorded

        def skip_blocks(module: Any, arguments: tuple[Any, ...], output: Any) -> None:
            """If blocks pass on nothing but hidden states, their arguments do not depend on what they compute, and blocks need not run."""
            hidden, beside = split_output(output)
            if not any(in_encoder) and all(part is None for part in beside or ()):
                stack.enter_context(returning(blocks, hidden, [beside] * len(blocks)))

        handles: list[Any] = [block.register_forward_pre_hook(record, with_kwargs=True) for block in blocks]
        handles.append(blocks[0].register_forward_hook(skip_blocks))
        with ExitStack() as stack, suppress(_AllRecorded):
            for handle in handles:
                stack.callback(handle.remove)
            read_through(model, sequences)

    def run(self, index: int, hidden: torch.Tensor) -> torch.Tensor:
        """The output of block `index`, with its present weights, for these hidden states."""
        arguments, options = _with_hidden(*self._calls[index], hidden)
        hidden, self._beside[index] = split_output(self.blocks[index](*arguments, **options))
        return hidden

    def forget(self, index: int) -> None:
        """Free what is recorded of block `index`, which is not run again."""
        self._calls[index] = ((), {})
        self.entering.pop(index, None)
        self._beside.pop(index, None)

    def losses(self, hidden: torch.Tensor) -> torch.Tensor:
        """−log p of every target, in nats, if the last block returns these hidden states. Every block must have been run once."""
        with returning(self.blocks, hidden, [self._beside[index] for index in range(len(self.blocks))]):
            return target_losses(self.model, self.sequences)


@contextmanager
def returning(
    blocks: list[nn.Module], hidden: torch.Tensor, beside: Sequence[tuple[Any, ...] | None]
) -> Iterator[None]:
    """Context manager: every block returns `hidden` at once, with what it returns `beside` it; the rest of the model is unchanged."""
    # An offloaded block has a `forward` of its own.
    before = [block.__dict__.get("forward") for block in blocks]

    def constant(others: tuple[Any, ...] | None) -> Any:
        return lambda *arguments, **options: hidden if others is None else (hidden, *others)

    try:
        for block, others in zip(blocks, beside, strict=True):
            block.forward = constant(others)
        yield
    finally:
        for block, forward in zip(blocks, before, strict=True):
            block.__dict__.pop("forward", None)
            if forward is not None:
                block.forward = forward


def split_output(output: Any) -> tuple[torch.Tensor, tuple[Any, ...] | None]:
    """Hidden states, and what a block returns beside them: None where it returns nothing else."""
    return (output[0], output[1:]) if isinstance(output, tuple) else (output, None)


def _with_hidden(
    arguments: tuple[Any, ...], options: dict[str, Any], hidden: torch.Tensor | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with other hidden states, which are the first positional argument or the keyword `hidden_states`."""
    if arguments:
        return (hidden, *arguments[1:]), options
    return arguments, options | {"hidden_states": hidden}
