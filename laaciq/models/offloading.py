"""Offloaded blocks: their weights lie in host memory or on disk, and are on the device only while a block runs.

A block fetches its weights when it is called and gives them up when it returns. If gradients are recorded, it keeps only its inputs, and
runs again in the backward pass: so the weights of one block at a time, and those of the next on their way, are on the device.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import nn

from laaciq.engine.pinned_memory import pinned_copies
from laaciq.models.recomputing import Recomputing, recorded_first

# Parameters and buffers of a block, by their names within it.
BlockTensors = dict[str, torch.Tensor]


class BlockSource(Protocol):
    """Where offloaded blocks fetch their weights."""

    def fetch(self, index: int) -> BlockTensors:
        """The weights of a block, on the device. They are the caller's: it may change them."""


class OffloadedBlocks:
    """`blocks` of a model, by index, that fetch their weights from `source`. Unless `recomputing` is None, a block runs again for gradients."""

    def __init__(
        self,
        blocks: Mapping[int, nn.Module],
        source: BlockSource,
        device: torch.device,
        *,
        recomputing: Recomputing | None = recorded_first,
    ) -> None:
        self.source, self.device, self.recomputing = source, device, recomputing
        self._blocks = dict(blocks)
        self._homes = {index: list(_slots(block)) for index, block in blocks.items()}
        self._users: Counter[int] = Counter()
        self._attach()

    @contextmanager
    def present(self, index: int) -> Iterator[None]:
        """Context manager: the block's weights are on the device. Changes to them are lost at the end."""
        if index not in self._blocks:
            yield
            return
        if not self._users[index]:
            fetched = self.source.fetch(index)
            for slot in self._homes[index]:
                slot.put(fetched[slot.name])
        self._users[index] += 1
        try:
            yield
        finally:
            self._users[index] -= 1
            if not self._users[index]:
                for slot in self._homes[index]:
                    slot.restore()

    @contextmanager
    def detached(self) -> Iterator[None]:
        """Context manager: the blocks are plain modules without weights on the device, which can be copied."""
        for block in self._blocks.values():
            block.__dict__.pop("forward", None)
        try:
            yield
        finally:
            self._attach()

    def _attach(self) -> None:
        for index, block in self._blocks.items():
            block.forward = partial(self._forward, index, block.forward)

    def _forward(self, index: int, forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            with self.present(index):
                return forward(*arguments, **options)

        if self.recomputing is not None and torch.is_grad_enabled():
            return self.recomputing(run, arguments, options)
        return run(*arguments, **options)


@dataclass(frozen=True)
class _Slot:
    """One place for a tensor in a block. `home` is what lies there while the block is away."""

    name: str
    tensors: dict[str, Any]
    key: str
    home: torch.Tensor

    def put(self, tensor: torch.Tensor) -> None:
        plain = isinstance(self.home, nn.Parameter) and not tensor.requires_grad
        self.tensors[self.key] = nn.Parameter(tensor, requires_grad=False) if plain else tensor

    def restore(self) -> None:
        self.tensors[self.key] = self.home


def _slots(block: nn.Module) -> Iterator[_Slot]:
    for path, module in block.named_modules():
        for tensors in (module._parameters, module._buffers):
            for key, tensor in tensors.items():
                if tensor is not None:
                    yield _Slot(f"{path}.{key}" if path else key, tensors, key, tensor)


@dataclass
class HostWeights:
    """Blocks whose weights are in host memory or in mapped files: `homes`, by index. They are copied to `device`, floats as numbers of type
    `dtype`, if it is given. While a block is used, the next one is on its way to a GPU.
    """

    homes: dict[int, BlockTensors]
    device: torch.device
    dtype: torch.dtype | None = None
    _coming: tuple[int, BlockTensors, Any] | None = field(default=None, init=False, repr=False)
    _last: int = field(default=-1, init=False, repr=False)
    _begun: Any = field(default=None, init=False, repr=False)

    # Fetched for inference, a block may be used for gradients later.
    @torch.inference_mode(False)
    @torch.no_grad()
    def fetch(self, index: int) -> BlockTensors:
        coming, self._coming = self._coming, None
        following = next_block(sorted(self.homes), self._last, index)
        self._last = index
        if coming is None or coming[0] != index:
            tensors = self._copied(index)
        else:
            _, tensors, arrived = coming
            present = torch.cuda.current_stream(self.device)
            present.wait_event(arrived)
            for tensor in tensors.values():
                tensor.record_stream(present)
        if self.device.type == "cuda" and following is not None:
            self._wait_for_last()
            self._start(following)
        return tensors

    def _wait_for_last(self) -> None:
        """Until the GPU begins with the block before this one. The processor is far ahead of it: without that, copies of all further blocks
        would be on the GPU, and none of them could be freed yet.
        """
        before, self._begun = self._begun, torch.cuda.Event()
        self._begun.record(torch.cuda.current_stream(self.device))
        if before is not None:
            before.synchronize()

    def _start(self, index: int) -> None:
        with torch.cuda.stream(_side_stream(self.device)):
            tensors = self._copied(index)
            arrived = torch.cuda.Event()
            arrived.record()
        self._coming = index, tensors, arrived

    def _copied(self, index: int) -> BlockTensors:
        return {
            name: home.to(
                self.device, self.dtype if home.is_floating_point() else None, copy=True, non_blocking=home.is_pinned()
            )
            for name, home in self.homes[index].items()
        }


def next_block(blocks: list[int], last: int, index: int) -> int | None:
    """Of these blocks in order, the one that is probably used after `index`, which follows `last`: the neighbour in the same direction, and the
    first one after the last. Backwards means that a block comes again, or the one before it.
    """
    place = blocks.index(index)
    backwards = place > 0 and (last == index or blocks[place + 1 : place + 2] == [last])
    following = blocks[place - 1 if backwards else (place + 1) % len(blocks)]
    return None if following == index else following


@cache
def _side_stream(device: torch.device) -> Any:
    """The stream in which blocks are copied while others run."""
    return torch.cuda.Stream(device)


def tensor_bytes(module: nn.Module, dtype: torch.dtype | None = None) -> int:
    """Memory of a module's parameters and buffers, each counted once; floats as numbers of type `dtype`, if it is given."""
    tensors = {id(t): t for t in (*module.parameters(), *module.buffers())}
    return sum(t.numel() * (dtype if dtype and t.is_floating_point() else t.dtype).itemsize for t in tensors.values())


def place_blocks(
    module: nn.Module,
    blocks: list[nn.Module],
    device: torch.device,
    *,
    most_bytes: int,
    dtype: torch.dtype | None = None,
    pinned_bytes: int = 0,
) -> OffloadedBlocks:
    """Move a model to `device`, where its weights may take `most_bytes`: everything outside the blocks, and as many blocks as fit, from the
    first on. The others are offloaded: the weights of as many as take `pinned_bytes` move to pinned memory, those of the others stay where they
    are.
    """
    sizes = [tensor_bytes(block, dtype) for block in blocks]
    taken = tensor_bytes(module, dtype) - sum(sizes)
    offloaded: dict[int, nn.Module] = {}
    for index, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
        taken += size
        # Two others at a time come and go.
        if taken + 2 * size > most_bytes:
            offloaded[index] = block
    away = {id(slot.home) for block in offloaded.values() for slot in _slots(block)}
    for slot in _slots(module):
        if id(slot.home) not in away:
            slot.home.data = slot.home.data.to(device, dtype if slot.home.is_floating_point() else None)
    slots = {index: list(_slots(block)) for index, block in offloaded.items()}
    _pin([slot.home for index in _first_within(pinned_bytes, offloaded) for slot in slots[index]])
    homes = {index: {slot.name: slot.home.detach() for slot in of_block} for index, of_block in slots.items()}
    return OffloadedBlocks(offloaded, HostWeights(homes, device, dtype), device)


def _first_within(most_bytes: int, blocks: Mapping[int, nn.Module]) -> list[int]:
    """As many blocks as take no more than that, as they are stored."""
    sizes = accumulate(map(tensor_bytes, blocks.values()))
    return [index for index, size in zip(blocks, sizes, strict=True) if size <= most_bytes]


def _pin(tensors: list[torch.Tensor]) -> None:
    for tensor, copied in zip(tensors, pinned_copies(tensors), strict=True):
        tensor.data = copied


def hollow_copy(module: nn.Module, blocks: list[nn.Module], offloaded: OffloadedBlocks | None) -> nn.Module:
    """A copy of a model whose blocks have no weights, to be used with a source of other weights."""
    memo: dict[int, Any] = {}
    for slot in (slot for block in blocks for slot in _slots(block)):
        empty = torch.empty_like(slot.home, device="meta")
        is_parameter = isinstance(slot.home, nn.Parameter)
        memo[id(slot.home)] = nn.Parameter(empty, requires_grad=False) if is_parameter else empty
    if offloaded is None:
        return copy.deepcopy(module, memo)
    with offloaded.detached():
        return copy.deepcopy(module, memo)
