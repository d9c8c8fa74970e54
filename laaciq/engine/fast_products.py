"""Products of float32 matrices on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
