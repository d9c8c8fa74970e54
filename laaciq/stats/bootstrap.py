"""The bootstrap over documents.

A *sample* is one language's documents. Statistics here are ratios of sums (loss over tokens), so that a resample is a vector of counts and
a draw costs one matrix product.
"""

from __future__ import annotations

import zlib

import numpy as np

from laaciq.stats.estimate import LEVEL


def document_counts(documents: int, *, draws: int, seed: int, stream: str = "") -> np.ndarray:
    """How often each document is drawn, one row a draw. Samples with the same `stream` are resampled together."""
    random = np.random.default_rng([seed, zlib.crc32(stream.encode())])
    return random.multinomial(documents, np.full(documents, 1 / documents), size=draws)


def resampled_ratios(numerator: np.ndarray, denominator: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Σ numerator / Σ denominator in every draw, spread about the estimate by √(n/(n−1)). Documents go along the first axis.

    The plug-in bootstrap's variance is too small by (n−1)/n; the factor mends that.
    """
    estimate = numerator.sum(0) / denominator.sum(0)
    draws = (counts @ numerator) / (counts @ denominator)
    return estimate + spread_factor(len(numerator)) * (draws - estimate)


def spread_factor(documents: int) -> float:
    """√(n/(n−1)); not a number for a single document, of which no spread can be known."""
    return float(np.sqrt(documents / (documents - 1))) if documents > 1 else float("nan")


def percentile_interval(draws: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def basic_interval(estimate: float, draws: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """2θ̂ − the percentiles: for statistics whose draws are biased as the estimate is, such as a maximum of noisy values."""
    low, high = percentile_interval(draws, level)
    return 2 * estimate - high, 2 * estimate - low
