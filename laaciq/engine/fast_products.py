"""Matrix products in less than float32, where that takes less time and quality does not move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from laaciq.engine.bfloat16 import cpu_multiplies_bfloat16

# Narrower products take as long in bfloat16 on a CPU: most of their time goes into everything else.
_WIDE = 512


@contextmanager
def fast_products() -> Iterator[None]:
    """Context manager and decorator: on a GPU, float32 matrices are multiplied in TF32, which rounds factors to 10 bits of mantissa and adds in
    float32. Models in bfloat16 have factors of 7 bits. On a CPU nothing changes.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def training_type(device: torch.device, dtype: torch.dtype, width: int) -> torch.dtype:
    """The type that a model of this type and width multiplies in while it is trained."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if dtype == torch.bfloat16:
        return dtype
    return torch.bfloat16 if width >= _WIDE and cpu_multiplies_bfloat16() else torch.float32
