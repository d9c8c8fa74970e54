"""The histogram of bit patterns of a 16-bit tensor: everything about it except the order of its weights.

A 16-bit float takes one of 65,536 values, so the counts of the patterns are a sufficient statistic: every moment, every top share and the
true quantization error at every clipping threshold follow from them exactly, and histograms of one dtype add up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch

from laaciq.engine.compiled import compiled
from laaciq.errors import BadOption, BrokenModel
from laaciq.profiling.moments import Moments, flat_pieces, top_count

PATTERNS = 2**16
DTYPES = (torch.float16, torch.bfloat16)
# Weights per copied piece of a tensor whose layout has gaps.
_PIECE = 2**22


@dataclass(frozen=True, eq=False)
class PatternHistogram:
    """How often each pattern of `dtype`, read as an unsigned integer, occurs. Histograms of one dtype pool by `+`."""

    dtype: torch.dtype
    counts: np.ndarray

    @classmethod
    def of(cls, tensor: torch.Tensor) -> PatternHistogram:
        """The histogram of a float16 or bfloat16 tensor of any shape and layout. NaN or infinite weights raise `BrokenModel`."""
        if tensor.dtype not in DTYPES:
            raise BadOption(f"a histogram of bit patterns needs a float16 or bfloat16 tensor, not {tensor.dtype}")
        pieces = flat_pieces(tensor.detach().view(torch.int16), _PIECE)
        return cls.of_patterns(tensor.dtype, (piece.numpy().view(np.uint16) for piece in pieces))

    @classmethod
    def of_patterns(cls, dtype: torch.dtype, pieces: Iterable[np.ndarray]) -> PatternHistogram:
        """The histogram of a tensor of `dtype` whose patterns come in pieces, as uint16."""
        counts = np.zeros(PATTERNS, dtype=np.int64)
        for patterns in pieces:
            _add_patterns(counts, patterns)
        broken = int(counts[~np.isfinite(_values(dtype))].sum())
        if broken:
            raise BrokenModel(
                f"{broken} of {counts.sum()} weights are NaN or infinite: the checkpoint is damaged, copy it again"
            )
        return cls(dtype, counts)

    def __add__(self, other: PatternHistogram) -> PatternHistogram:
        if other.dtype != self.dtype:
            raise BadOption(
                f"histograms of {self.dtype} and {other.dtype} have no patterns in common: pool their moments"
            )
        return PatternHistogram(self.dtype, self.counts + other.counts)

    @property
    def values(self) -> np.ndarray:
        """The value of every pattern, in float64; read-only."""
        return _values(self.dtype)

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def moments(self) -> Moments:
        """Mean, σ and κ, in a form that can be pooled with tensors of another dtype."""
        present = np.flatnonzero(self.counts)
        return Moments.of_values(self.values[present], self.counts[present]) if len(present) else Moments()

    @property
    def mean(self) -> float:
        return self.moments.mean

    @property
    def sigma(self) -> float:
        return self.moments.sigma

    @property
    def kurtosis(self) -> float:
        """κ = E[(W−μ)⁴]/σ⁴ − 3; 0 where all weights are equal."""
        return self.moments.kurtosis

    def top_share(self, percent: float) -> float:
        """Share of the total magnitude that the largest `percent` % of weights hold; 0 where all are 0."""
        magnitudes, counts = self._magnitudes
        total = float((magnitudes * counts).sum())
        if not total:
            return 0.0
        # Weights that are larger than those of each magnitude: of the last magnitude reached, only some belong to the top.
        larger = np.cumsum(counts[::-1])[::-1] - counts
        taken = np.clip(top_count(self.count, percent) - larger, 0, counts)
        return float((magnitudes * taken).sum()) / total

    @property
    def super_weight_ratio(self) -> float | None:
        """Largest |w| over the second largest; None where there is no second, or it is 0."""
        magnitudes, counts = self._magnitudes
        two = np.repeat(magnitudes[-2:], np.minimum(counts[-2:], 2))[::-1]
        return float(two[0] / two[1]) if len(two) > 1 and two[1] else None

    @cached_property
    def _magnitudes(self) -> tuple[np.ndarray, np.ndarray]:
        """The magnitudes that occur, ascending, and their counts. The low 15 bits of a pattern grow with |w|; the top bit is the sign."""
        counts = self.counts[: PATTERNS // 2] + self.counts[PATTERNS // 2 :]
        present = np.flatnonzero(counts)
        return self.values[present], counts[present]


@lru_cache
def _values(dtype: torch.dtype) -> np.ndarray:
    patterns = torch.arange(PATTERNS, dtype=torch.int32).to(torch.int16)
    values = patterns.view(dtype).double().numpy()
    values.flags.writeable = False
    return values


@compiled
def _add_patterns(counts, patterns):  # type: ignore[no-untyped-def]
    """Compiled, because numpy and torch widen every pattern to 64 bits to count it and are four times as slow."""
    for index in range(len(patterns)):
        counts[patterns[index]] += 1
