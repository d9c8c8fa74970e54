"""Mean, σ and κ of weights in float64, pooled without loss over pieces, tensors and dtypes; and the largest magnitudes of a tensor.

A tensor is read in pieces, so the extra memory is constant (except for the top 10 % of magnitudes). The moments of a piece are taken about
the piece's mean and joined by the pairwise formulas of Chan, Golub & LeVeque (1983) and Pébay (2008, SAND2008-6212), which lose no
precision if the mean is far from zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from laaciq.errors import BrokenModel

# Weights per piece: the float64 copy and its powers stay in a core's cache.
_PIECE = 2**15
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# float64 holds sums of fourth powers of magnitudes below this, and above its inverse. Only float64 tensors can reach it.
_LARGEST = 1e70
# What `LargestMagnitudes` keeps, in percent.
_KEPT = 10


@dataclass(frozen=True)
class Moments:
    """Count, mean and M_k = Σ(w − μ)^k for k = 2, 3, 4, of the population: no correction for sampling. `a + b` pools; `Moments()` is empty.

    The mean is `mean` + `remainder`: the second holds the rounding error of the first, so that pooling stays exact where μ ≫ σ. σ² = M₂/n,
    skewness γ = (M₃/n)/σ³, excess kurtosis κ = (M₄/n)/σ⁴ − 3. If all weights are equal, or σ < 1e−70, γ and κ are 0 by definition.
    """

    count: int = 0
    mean: float = 0.0
    remainder: float = 0.0
    m2: float = 0.0
    m3: float = 0.0
    m4: float = 0.0

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Moments:
        """The moments of a floating tensor of any shape and layout. NaN or infinite weights, fp8 and integers raise `BrokenModel`."""
        refuse_codes(tensor)
        pooled = cls()
        for piece in flat_pieces(tensor, _PIECE):
            wide = piece.double().numpy()
            # A NaN is the largest of any piece that has one.
            if not np.abs(wide).max() < _LARGEST:
                raise _broken(tensor)
            pooled += cls.of_values(wide)
        return pooled

    @classmethod
    def of_values(cls, values: np.ndarray, counts: np.ndarray | None = None) -> Moments:
        """The moments of float64 values, each counted once or `counts` times."""
        count = len(values) if counts is None else int(counts.sum())
        if values.min() == values.max():
            return cls(count, float(values[0]))
        often = np.float64(1) if counts is None else counts.astype(np.float64)
        # Sums of products, not dot products: numpy adds pairwise, which is more exact, and on this thread alone.
        mean = float((values * often).sum()) / count
        deviations = values - mean
        squares = deviations * deviations
        weighted = squares * often
        s1, s2 = float((deviations * often).sum()), float(weighted.sum())
        s3, s4 = float((weighted * deviations).sum()), float((weighted * squares).sum())
        # Shift from the rounded mean to the true one.
        shift = s1 / count
        return cls(
            count,
            mean,
            shift,
            s2 - count * shift**2,
            s3 - 3 * shift * s2 + 2 * count * shift**3,
            s4 - 4 * shift * s3 + 6 * shift**2 * s2 - 3 * count * shift**4,
        )

    def __add__(self, other: Moments) -> Moments:
        if not self.count or not other.count:
            return self if self.count else other
        a, b, n = self.count, other.count, self.count + other.count
        # The difference of close means is exact in float64; that of their remainders then counts.
        delta = (other.mean - self.mean) + (other.remainder - self.remainder)
        step = self.remainder + delta * (b / n)
        mean = self.mean + step
        ab = a * b / n
        return Moments(
            n,
            mean,
            step - (mean - self.mean),
            self.m2 + other.m2 + delta**2 * ab,
            self.m3 + other.m3 + delta**3 * ab * ((a - b) / n) + 3 * delta * (a * other.m2 - b * self.m2) / n,
            self.m4
            + other.m4
            + delta**4 * ab * ((a * a - a * b + b * b) / (n * n))
            + 6 * delta**2 * (a * a * other.m2 + b * b * self.m2) / (n * n)
            + 4 * delta * (a * other.m3 - b * self.m3) / n,
        )

    @property
    def sigma(self) -> float:
        """σ, of the population."""
        return math.sqrt(self.m2 / self.count) if self.count else 0.0

    @property
    def skewness(self) -> float:
        """γ = E[(W−μ)³]/σ³."""
        return self.m3 / self.m2 / self.sigma if self._spread else 0.0

    @property
    def kurtosis(self) -> float:
        """κ = E[(W−μ)⁴]/σ⁴ − 3."""
        return self.m4 / self.m2 / (self.m2 / self.count) - 3 if self._spread else 0.0

    @property
    def _spread(self) -> bool:
        return self.sigma >= 1 / _LARGEST


@dataclass(frozen=True, eq=False)
class LargestMagnitudes:
    """The top 10 % of |w|, largest first, and the sum of all |w|."""

    count: int
    total: float
    largest: np.ndarray

    @classmethod
    def of(cls, tensor: torch.Tensor) -> LargestMagnitudes:
        """The exact result. Pieces are as large as what is kept, so that each weight is partitioned at most twice."""
        refuse_codes(tensor)
        # Two at least, for the ratio of the largest to the second.
        keep = max(2, top_count(tensor.numel(), _KEPT))
        largest = np.empty(0)
        totals = []
        for piece in flat_pieces(tensor, max(keep, _PIECE)):
            # numpy has no bfloat16.
            magnitudes = piece.abs().to(torch.promote_types(piece.dtype, torch.float32)).numpy()
            totals.append(float(magnitudes.sum(dtype=np.float64)))
            largest = np.concatenate([largest.astype(magnitudes.dtype), magnitudes])
            if len(largest) > keep:
                largest.partition(len(largest) - keep)
                largest = largest[-keep:]
        total = math.fsum(totals)
        if not math.isfinite(total):
            raise _broken(tensor)
        largest.sort()
        return cls(tensor.numel(), total, largest[::-1])

    def top_share(self, percent: float) -> float:
        """Share of the total magnitude that the largest `percent` % of weights hold, at most 10 %; 0 where all are 0."""
        top = self.largest[: top_count(self.count, percent)].sum(dtype=np.float64)
        return float(top) / self.total if self.total else 0.0

    @property
    def super_weight_ratio(self) -> float | None:
        """Largest |w| over the second largest; None where there is no second, or it is 0."""
        two = self.largest[:2].astype(np.float64)
        return float(two[0] / two[1]) if len(two) > 1 and two[1] else None


def top_count(count: int, percent: float) -> int:
    """Number of weights in the top `percent` %, rounded up and so at least one."""
    # In fractions: in floats 0.07 % of 10,000 would be 7.000000000000001, and rounded up 8.
    return math.ceil(count * Fraction(str(percent)) / 100)


def flat_pieces(tensor: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    """All elements once, as flat pieces of at most `size`, in memory order. Pieces are copied only if the layout has gaps."""
    tensor = tensor.detach()
    dense = tensor.permute(sorted(range(tensor.ndim), key=tensor.stride, reverse=True))
    if dense.is_contiguous():
        yield from (piece for piece in dense.view(-1).split(size) if len(piece))
    elif dense.numel() <= size:
        yield dense.reshape(-1)
    elif len(dense) == 1:
        yield from flat_pieces(dense[0], size)
    else:
        for rows in dense.split(max(1, size * len(dense) // dense.numel())):
            yield from flat_pieces(rows, size)


def refuse_codes(tensor: torch.Tensor) -> None:
    """Raise `BrokenModel` unless the tensor holds 16, 32 or 64-bit floats: codes mean nothing without their scales."""
    if tensor.dtype not in _DTYPES:
        raise BrokenModel(
            f"{str(tensor.dtype).removeprefix('torch.')} holds codes, not weights: "
            "give the checkpoint from before quantization"
        )


def _broken(tensor: torch.Tensor) -> BrokenModel:
    finite = sum(int((piece.double().abs() < _LARGEST).sum()) for piece in flat_pieces(tensor, _PIECE))
    return BrokenModel(
        f"{tensor.numel() - finite} of {tensor.numel()} weights are NaN, infinite or beyond {_LARGEST:g}: "
        "the checkpoint is damaged, copy it again"
    )
