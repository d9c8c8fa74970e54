"""Pinned host memory, from which a GPU copies while it works."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

# torch rounds every pinned allocation up to a power of two, which for matrices of a model can be twice what they need.
_BUFFER_BYTES = 2**30
# GPUs copy fastest from such places.
_ALIGNED = 256


def _allocate(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def pinned_copies(
    tensors: Sequence[torch.Tensor], allocate: Callable[[int], torch.Tensor] = _allocate
) -> Iterator[torch.Tensor]:
    """Copies in pinned memory, in order, that share buffers. A buffer is freed when all of its tensors are. No tensor is held longer than it
    takes to copy it, so that a caller can replace one by one.
    """
    sizes = [-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in tensors]
    missing, free = sum(sizes), torch.empty(0, dtype=torch.uint8)
    for tensor, size in zip(tensors, sizes, strict=True):
        if size > len(free):
            free = allocate(max(size, min(missing, _BUFFER_BYTES)))
        own, free = free[: tensor.nbytes], free[size:]
        missing -= size
        yield own.view(tensor.dtype).view(tensor.shape).copy_(tensor.detach())
