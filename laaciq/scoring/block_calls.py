"""A model's blocks one at a time: how each is called for a batch is noted first, and then any of them can be run on other hidden states, and
what follows the blocks after them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from laaciq.models import LanguageModel
from laaciq.scoring.likelihood import read_through, target_losses
from laaciq.scoring.sequences import ScoredSequence


class _Noted(Exception):
    """All blocks have been called: what follows is not needed."""


class BlockCalls:
    """One batch. `entering` holds the hidden states that no block makes, by the block that they enter: the embeddings, and in an
    encoder-decoder those of both sides."""

    @torch.inference_mode()
    def __init__(
        self, model: LanguageModel, blocks: list[nn.Module], in_encoder: list[bool], sequences: list[ScoredSequence]
    ) -> None:
        self.model, self.blocks, self.sequences = model, blocks, sequences
        self.entering: dict[int, torch.Tensor] = {}
        self._calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        # By block: what it returned beside hidden states when it was last run; see `_parts`.
        self._beside: dict[int, tuple[Any, ...] | None] = {}

        def note(module: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            index = len(self._calls)
            if not index or in_encoder[index] != in_encoder[index - 1]:
                self.entering[index] = arguments[0] if arguments else options["hidden_states"]
            self._calls.append(_with_hidden(arguments, options, None))
            if len(self._calls) == len(blocks):
                raise _Noted

        def pass_by(module: Any, arguments: tuple[Any, ...], output: Any) -> None:
            """Where blocks tell each other nothing but hidden states, how they are called is known without what they make of them."""
            hidden, beside = _parts(output)
            if not any(in_encoder) and all(part is None for part in beside or ()):
                self._stand_in(hidden, [beside] * len(blocks))

        handles: list[Any] = [block.register_forward_pre_hook(note, with_kwargs=True) for block in blocks]
        handles.append(blocks[0].register_forward_hook(pass_by))
        try:
            read_through(model, sequences)
        except _Noted:
            pass
        finally:
            for handle in handles:
                handle.remove()
            self._stand_back()

    def run(self, index: int, hidden: torch.Tensor) -> torch.Tensor:
        """What block `index`, as it is now, makes of these hidden states."""
        arguments, options = _with_hidden(*self._calls[index], hidden)
        hidden, self._beside[index] = _parts(self.blocks[index](*arguments, **options))
        return hidden

    def forget(self, index: int) -> None:
        """Block `index` is not run again."""
        self._calls[index] = ((), {})
        self.entering.pop(index, None)
        self._beside.pop(index, None)

    def losses(self, hidden: torch.Tensor) -> torch.Tensor:
        """−log p of every target, in nats, when these hidden states leave the last block. All blocks have been run before."""
        try:
            self._stand_in(hidden, [self._beside[index] for index in range(len(self.blocks))])
            return target_losses(self.model, self.sequences)
        finally:
            self._stand_back()

    def _stand_in(self, leaving: torch.Tensor, beside: list[tuple[Any, ...] | None]) -> None:
        """From now on blocks return `leaving` at once: what precedes and follows them is the model's own."""

        def returning(own: tuple[Any, ...] | None) -> Any:
            return lambda *arguments, **options: leaving if own is None else (leaving, *own)

        for block, own in zip(self.blocks, beside, strict=True):
            block.forward = returning(own)

    def _stand_back(self) -> None:
        for block in self.blocks:
            block.__dict__.pop("forward", None)


def _parts(output: Any) -> tuple[torch.Tensor, tuple[Any, ...] | None]:
    """Hidden states, and what a block returns beside them: None where it returns nothing else."""
    return (output[0], output[1:]) if isinstance(output, tuple) else (output, None)


def _with_hidden(
    arguments: tuple[Any, ...], options: dict[str, Any], hidden: torch.Tensor | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with other hidden states: the first argument, by place or by name."""
    if arguments:
        return (hidden, *arguments[1:]), options
    return arguments, options | {"hidden_states": hidden}
