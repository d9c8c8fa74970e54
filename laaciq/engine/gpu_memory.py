"""Memory of a GPU: what this process may still take of it, and a bound that torch keeps."""

from __future__ import annotations

from collections.abc import Callable

import torch


def free_bytes() -> int:
    """What nobody uses of the present GPU. What torch holds of it for later tensors is free for this process."""
    free, _ = torch.cuda.mem_get_info()
    return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def room_for_tensors() -> float:
    """Bytes that torch may still take, by its bound and by what is free."""
    allowed = torch.cuda.get_per_process_memory_fraction() * torch.cuda.get_device_properties().total_memory
    return min(allowed - torch.cuda.memory_allocated(), free_bytes())


def bound_tensors(size: float) -> Callable[[], None]:
    """Make torch refuse to take more for tensors. Returns a function that restores the bound that there was before."""
    before = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(min(1.0, size / torch.cuda.get_device_properties().total_memory))
    return lambda: torch.cuda.set_per_process_memory_fraction(before)
