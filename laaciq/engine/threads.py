"""Results that do not depend on the number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Context manager and decorator: CPU work runs in one thread. For factorizations that decide codes.

    LAPACK splits Cholesky and SVD between threads and so sums in another order. A last bit that differs flips one code in a hundred
    thousand. Later blocks read the result, and by the last block one code in five differs (the reference model, 1 and 2 threads). Matrix
    products, which take most of the time, give the same bits for any number of threads, except with 5 to 11 rows (MKL):
    `laaciq.scoring.likelihood` makes none of those.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
