"""Running a model's blocks one at a time. The arguments of each block are recorded for a batch; then any block can be run on other hidden
states, and so can what follows the last block."""

from __future__ import annotations

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
        # By block: what it returned beside hidden states in its last run; see `_parts`.
        self._beside: dict[int, tuple[Any, ...] | None] = {}
        # An offloaded block has a `forward` of its own.
        self._forwards = [block.__dict__.get("forward") for block in blocks]

        def record(module: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            index = len(self._calls)
            if not index or in_encoder[index] != in_encoder[index - 1]:
                self.entering[index] = arguments[0] if arguments else options["hidden_states"]
            self._calls.append(_with_hidden(arguments, options, None))
            if len(self._calls) == len(blocks):
                raise _AllRecorded

        def skip_blocks(module: Any, arguments: tuple[Any, ...], output: Any) -> None:
            """If blocks pass on nothing but hidden states, their arguments do not depend on what they compute, and blocks need not run."""
            hidden, beside = _parts(output)
            if not any(in_encoder) and all(part is None for part in beside or ()):
                self._replace_blocks(hidden, [beside] * len(blocks))

        handles: list[Any] = [block.register_forward_pre_hook(record, with_kwargs=True) for block in blocks]
        handles.append(blocks[0].register_forward_hook(skip_blocks))
        try:
            read_through(model, sequences)
        except _AllRecorded:
            pass
        finally:
            for handle in handles:
                handle.remove()
            self._restore_blocks()

    def run(self, index: int, hidden: torch.Tensor) -> torch.Tensor:
        """The output of block `index`, with its present weights, for these hidden states."""
        arguments, options = _with_hidden(*self._calls[index], hidden)
        hidden, self._beside[index] = _parts(self.blocks[index](*arguments, **options))
        return hidden

    def forget(self, index: int) -> None:
        """Free what is recorded of block `index`, which is not run again."""
        self._calls[index] = ((), {})
        self.entering.pop(index, None)
        self._beside.pop(index, None)

    def losses(self, hidden: torch.Tensor) -> torch.Tensor:
        """−log p of every target, in nats, if the last block returns these hidden states. Every block must have been run once."""
        try:
            self._replace_blocks(hidden, [self._beside[index] for index in range(len(self.blocks))])
            return target_losses(self.model, self.sequences)
        finally:
            self._restore_blocks()

    def _replace_blocks(self, leaving: torch.Tensor, beside: list[tuple[Any, ...] | None]) -> None:
        """Let every block return `leaving` at once; the rest of the model is unchanged."""

        def returning(others: tuple[Any, ...] | None) -> Any:
            return lambda *arguments, **options: leaving if others is None else (leaving, *others)

        for block, others in zip(self.blocks, beside, strict=True):
            block.forward = returning(others)

    def _restore_blocks(self) -> None:
        for block, forward in zip(self.blocks, self._forwards, strict=True):
            block.__dict__.pop("forward", None)
            if forward is not None:
                block.forward = forward


def _parts(output: Any) -> tuple[torch.Tensor, tuple[Any, ...] | None]:
    """Hidden states, and what a block returns beside them: None where it returns nothing else."""
    return (output[0], output[1:]) if isinstance(output, tuple) else (output, None)


def _with_hidden(
    arguments: tuple[Any, ...], options: dict[str, Any], hidden: torch.Tensor | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with other hidden states, which are the first positional argument or the keyword `hidden_states`."""
    if arguments:
        return (hidden, *arguments[1:]), options
    return arguments, options | {"hidden_states": hidden}
