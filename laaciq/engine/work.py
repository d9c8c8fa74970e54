"""Amounts of computation by kind, and how fast this machine does each kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass

import torch

from laaciq.engine.bfloat16 import keep_onednn_safe
from laaciq.engine.threads import one_thread

# Seconds that each kind is measured for, after one call that loads the code.
_MEASURED_SECONDS = 0.04
# Largest matrices that speed is measured on, on a CPU and on an accelerator: tokens, inputs, and the size of a matrix that is factorized.
# Larger ones are no faster per operation, and take longer to make.
_LARGEST = {True: (512, 2048, 512), False: (8192, 8192, 4096)}
# On a CPU, a model in bfloat16 converts numbers around every product: it reaches these shares of the speed of products and of elementwise
# operations. (Gemma 3 270M, two cores, all stages of planning and tuning: 511 s; announced without them 336 s, with them 479 s.)
_CONVERTING = (0.8, 0.5)


@dataclass(frozen=True)
class Work:
    """`products`: floating-point operations of matrix products. `factorizations`: those of Cholesky and eigenvalues in float64, in one
    thread. `elements`: numbers that elementwise operations read. `calls`: operations started, however small. `copied`: bytes that an
    accelerator reads from memory that is not pinned. `pinned`: bytes that it reads from pinned memory, and waits for; `prefetched`: bytes that
    it reads from there while it computes.
    """

    products: float = 0.0
    factorizations: float = 0.0
    elements: float = 0.0
    calls: float = 0.0
    copied: float = 0.0
    pinned: float = 0.0
    prefetched: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> Work:
        return Work(*(times * amount for amount in astuple(self)))

    def seconds(self, speed: Speed) -> float:
        amounts = (
            (self.products, speed.products),
            (self.factorizations, speed.factorizations),
            (self.elements, speed.elements),
        )
        computing = sum(amount / rate for amount, rate in amounts)
        starting = self.calls / speed.calls
        if speed.copied is None or speed.pinned is None:
            return computing + starting
        # An accelerator computes while the processor starts what follows, and while weights are on their way.
        overlapping = max(computing, starting, self.prefetched / speed.pinned)
        return overlapping + self.copied / speed.copied + self.pinned / speed.pinned


@dataclass(frozen=True)
class Speed:
    """How much of each kind of work a machine does per second. `copied` and `pinned` are None on a CPU, which reads weights where they are."""

    products: float
    factorizations: float
    elements: float
    calls: float
    copied: float | None = None
    pinned: float | None = None


def measure_speed(device: torch.device, dtype: torch.dtype, width: int, widest: int) -> Speed:
    """The present speed with the present number of threads, on matrices of a model of this type and width. Takes about 0.2 s."""
    # Often the first product of the process.
    keep_onednn_safe()
    tokens, largest, factored = _LARGEST[device.type == "cpu"]
    inputs, outputs = min(width, largest), min(widest, 2 * largest)
    hidden = torch.rand(tokens, inputs, device=device, dtype=dtype)
    weights = torch.rand(outputs, inputs, device=device, dtype=dtype)
    values = torch.rand(2**18 if device.type == "cpu" else 2**26, device=device)
    small = torch.rand(64, device=device)
    size = min(widest, factored)
    matrix = torch.eye(size, dtype=torch.float64, device=device) + 1 / size

    @one_thread()
    def factorize() -> None:
        torch.linalg.cholesky_ex(matrix)

    converting = device.type == "cpu" and dtype == torch.bfloat16
    products, elements = _CONVERTING if converting else (1.0, 1.0)
    return Speed(
        products=products * 2 * tokens * inputs * outputs * _per_second(lambda: hidden @ weights.T, device),
        factorizations=size**3 / 3 * _per_second(factorize, device),
        elements=elements * values.numel() * _per_second(lambda: values.mul_(1.0), device),
        calls=_per_second(lambda: small.mul_(1.0), device),
        copied=_copied_per_second(device, pinned=False),
        pinned=_copied_per_second(device, pinned=True),
    )


def _copied_per_second(device: torch.device, *, pinned: bool) -> float | None:
    """Bytes of pinned memory, or of memory that is not, like that of a mapped file; None on a CPU."""
    if device.type == "cpu":
        return None
    there = torch.empty(2**26, dtype=torch.uint8, pin_memory=pinned).fill_(1)
    return there.nbytes * _per_second(lambda: there.to(device, non_blocking=pinned), device)


def _per_second(act: Callable[[], object], device: torch.device) -> float:
    """Of the fastest of several rounds, each twice as long as the one before. Where other programs hold the processor, torch's threads wait for
    each other, and a single round may be a hundred times as slow as the work that follows.
    """
    act()
    _wait(device)
    fastest, times, ends = 0.0, 1, time.perf_counter() + _MEASURED_SECONDS
    while (began := time.perf_counter()) < ends:
        for _ in range(times):
            act()
        _wait(device)
        fastest = max(fastest, times / (time.perf_counter() - began))
        times *= 2
    return fastest


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
