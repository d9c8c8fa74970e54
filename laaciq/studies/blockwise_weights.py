"""Weights of a candidate that are computed when they are read, a block at a time, so that no second model is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch


class BlockwiseWeights(Mapping[str, torch.Tensor]):
    """Parameters by name. `blocks` has the block of each, and `compute` gives all of a block. Only the last block read is kept."""

    def __init__(self, blocks: Mapping[str, int], compute: Callable[[int], Mapping[str, torch.Tensor]]) -> None:
        self._blocks, self._compute = dict(blocks), compute
        self._last: int | None = None
        self._values: Mapping[str, torch.Tensor] = {}

    def __getitem__(self, name: str) -> torch.Tensor:
        block = self._blocks[name]
        if block != self._last:
            # What was there before need not lie beside the new ones.
            self._values = {}
            self._last, self._values = block, self._compute(block)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)
