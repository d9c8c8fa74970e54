"""What a model's last block returns at the scored positions: enough to form its logits again without running its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from laaciq.models import LanguageModel
from laaciq.scoring.block_calls import returning, split_output
from laaciq.scoring.likelihood import LEAST_ROWS, batches, read_through, read_tokens, target_positions
from laaciq.scoring.sequences import ScoredPassage, ScoredSequence


class LastHidden:
    """Hidden states of sequences, kept in host memory. Everything after the last block treats positions independently, so that logits of any
    targets can be formed together.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: LanguageModel,
        sequences: Sequence[ScoredSequence],
        *,
        advance: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        """`advance` receives the number of tokens of every batch."""
        self.model = model
        self._rows: dict[int, torch.Tensor] = {}
        self._beside: list[tuple[Any, ...] | None] = [None] * len(model.blocks)
        passages = [ScoredPassage([sequence], 0) for sequence in sequences]
        for owners, batch in batches(passages, read_tokens(model)):
            row, column = target_positions(model, batch)
            with self._watched() as returned:
                read_through(model, batch)
            rows = returned[-1][row, column].cpu().split([len(sequence.targets) for sequence in batch])
            self._rows |= {id(sequences[owner]): part for owner, part in zip(owners, rows, strict=True)}
            advance(sum(map(len, batch)))

    @torch.inference_mode()
    def logits(self, sequences: Sequence[ScoredSequence]) -> torch.Tensor:
        """The logits that score each target, one row per target, in the type in which the model computes them."""
        model = self.model
        hidden = torch.cat([self._rows[id(sequence)] for sequence in sequences]).to(model.device)
        count = len(hidden)
        # The last one is repeated where there are few.
        hidden = hidden[torch.arange(max(count, LEAST_ROWS)).clamp_max(count - 1).to(model.device)][:, None]
        # A batch of one token each: the shortest positions that any model has.
        tokens = torch.zeros(hidden.shape[:2], dtype=torch.long, device=model.device)
        arguments: dict[str, Any] = {"input_ids": tokens}
        if model.kind == "encoder-decoder":
            arguments["decoder_input_ids"] = tokens
        if model.kind != "masked":
            arguments["use_cache"] = False
        with returning(model.blocks, hidden, self._beside):
            return model.module(**arguments).logits[:count, 0]

    @contextmanager
    def _watched(self) -> Iterator[list[torch.Tensor]]:
        returned: list[torch.Tensor] = []

        def hook_of(index: int) -> Any:
            def hook(module: Any, inputs: Any, output: Any) -> None:
                hidden, beside = split_output(output)
                returned[:] = [hidden]
                # Of what a block returns beside hidden states, only the number matters after the last block.
                self._beside[index] = beside and (None,) * len(beside)

            return hook

        handles = [block.register_forward_hook(hook_of(index)) for index, block in enumerate(self.model.blocks)]
        try:
            yield returned
        finally:
            for handle in handles:
                handle.remove()
