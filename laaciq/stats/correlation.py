"""Pearson's correlation of two columns, with its p and its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from laaciq.stats.estimate import TAIL
from laaciq.stats.heterogeneity import exceedance_p

DRAWS = 10_000


@dataclass(frozen=True)
class Correlation:
    """`p` is two-sided, from the t distribution; `low` and `high` bound the 95 % bootstrap interval of `r`."""

    r: float
    n: int
    p: float
    low: float
    high: float


def pearson(x: ArrayLike, y: ArrayLike, *, draws: int = DRAWS, seed: int = 0) -> Correlation:
    """r = Σ(x−x̄)(y−ȳ) / √(Σ(x−x̄)² Σ(y−ȳ)²); p of t = r√((n−2)/(1−r²)) on n−2 degrees of freedom.

    The interval is the percentile bootstrap over pairs (Efron & Tibshirani 1993); a draw with a constant column has no r and is left out.

    Valid for independent pairs. p is exact when, given x, y is normal about a line with one variance, and fair otherwise from some 20
    pairs on; `permutation_p` needs no normality. Below 20 pairs the percentile interval is somewhat too narrow. Languages are related, so
    that n of them are fewer than n independent pairs, and both p and interval are then too hopeful. r sees straight lines alone, and one
    far point can make or break it.

    >>> correlation = pearson([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    >>> f"r = {correlation.r:.2f}, p = {correlation.p:.3f}"
    'r = 0.80, p = 0.104'
    """
    x, y = _columns(x, y)
    result = stats.pearsonr(x, y)
    drawn = np.random.default_rng(seed).integers(len(x), size=(draws, len(x)))
    resampled_x, resampled_y = x[drawn], y[drawn]
    defined = (np.ptp(resampled_x, axis=1) > 0) & (np.ptp(resampled_y, axis=1) > 0)
    drawn_r = _row_correlations(resampled_x[defined], resampled_y[defined])
    low, high = np.quantile(drawn_r, [TAIL, 1 - TAIL])
    return Correlation(float(result.statistic), len(x), float(result.pvalue), float(low), float(high))


def permutation_p(x: ArrayLike, y: ArrayLike, draws: int = DRAWS, seed: int = 0) -> float:
    """Share of random pairings of x with y whose |r| is at least the observed one, the observed pairing counted: never below 1/(draws+1).

    Valid whenever pairs are exchangeable, which asks for independence but for no distribution; n! pairings bound it from below, so that
    with 3 pairs nothing reaches 0.05.
    """
    x, y = _columns(x, y)
    shuffled = np.random.default_rng(seed).permuted(np.tile(y, (draws, 1)), axis=1)
    null = np.abs(_row_correlations(np.broadcast_to(x, shuffled.shape), shuffled))
    observed = abs(float(stats.pearsonr(x, y).statistic))
    # A pairing equal to the observed one gives the same r but for rounding.
    return exceedance_p(observed * (1 - 1e-12), null)


def _columns(x: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"columns of shapes {x.shape} and {y.shape} cannot be paired: give two of the same length")
    if len(x) < 3:
        raise ValueError(f"{len(x)} pairs are too few for a correlation: give at least 3")
    for name, column in (("first", x), ("second", y)):
        if not np.isfinite(column).all():
            raise ValueError(f"the {name} column holds NaN or infinite values")
        if np.ptp(column) == 0:
            raise ValueError(f"the {name} column is constant at {column[0]}: it correlates with nothing")
    return x, y


def _row_correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = _standardised(x), _standardised(y)
    return np.clip((x * y).sum(axis=1), -1, 1)


def _standardised(rows: np.ndarray) -> np.ndarray:
    """Of mean 0 and length 1, each row."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    # By the largest first, so that no square underflows.
    rows = rows / np.abs(rows).max(axis=1, keepdims=True)
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))
