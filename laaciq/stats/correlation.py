"""Pearson's, Spearman's and partial correlation of two columns, with p and interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from laaciq.stats.columns import paired_columns
from laaciq.stats.estimate import TAIL
from laaciq.stats.heterogeneity import exceedance_p

DRAWS = 10_000


@dataclass(frozen=True)
class Correlation:
    """`p` is two-sided, from the t distribution; `low` and `high` bound the 95 % interval of `r`."""

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
    x, y = paired_columns(x, y)
    result = stats.pearsonr(x, y)
    drawn = np.random.default_rng(seed).integers(len(x), size=(draws, len(x)))
    resampled_x, resampled_y = x[drawn], y[drawn]
    defined = (np.ptp(resampled_x, axis=1) > 0) & (np.ptp(resampled_y, axis=1) > 0)
    drawn_r = _row_correlations(resampled_x[defined], resampled_y[defined])
    low, high = np.quantile(drawn_r, [TAIL, 1 - TAIL])
    return Correlation(float(result.statistic), len(x), float(result.pvalue), float(low), float(high))


def spearman(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Pearson's r of the ranks, ties given their mean rank: sees any monotone relation, and no far point decides it.

    p is from Student's t on n − 2 degrees of freedom, fair from 10 pairs on. The interval is tanh(atanh r ± 1.96 √((1 + r²/2)/(n − 3)))
    (Bonett & Wright 2000), valid for independent pairs, |r| below 0.95 and at least 10 pairs; for r = ±1 it is that value alone.
    """
    x, y = paired_columns(x, y)
    # R's `cor.test` has this p with `exact = FALSE`; by default it enumerates pairings below 10 pairs, and takes a series from 10 on.
    result = stats.spearmanr(x, y)
    r = float(np.clip(result.statistic, -1, 1))
    low, high = _fisher_interval(r, (1 + r**2 / 2) / (len(x) - 3)) if len(x) > 3 else (-1.0, 1.0)
    return Correlation(r, len(x), float(result.pvalue), low, high)


def partial(x: ArrayLike, y: ArrayLike, controls: ArrayLike) -> Correlation:
    """r of what a linear regression on the k columns of `controls` leaves of x and of y.

    p is from Student's t on n − 2 − k degrees of freedom; the interval is tanh(atanh r ± 1.96/√(n − k − 3)) (Fisher 1924). For normal
    residuals p is exact and the interval nearly so. A control that is caused by both x and y makes a correlation where there is none.
    """
    x, y = paired_columns(x, y)
    held = np.asarray(controls, dtype=float)
    held = held[:, None] if held.ndim == 1 else held
    if len(held) != len(x) or not np.isfinite(held).all():
        raise ValueError("controls need one finite row per pair")
    count, width = held.shape
    if count - width - 3 < 1:
        raise ValueError(f"{count} pairs are too few for {width} controls: give at least {width + 4}")
    design = np.column_stack([np.ones(count), held])
    left, right = (column - design @ np.linalg.lstsq(design, column, rcond=None)[0] for column in (x, y))
    for name, residual, column in (("first", left, x), ("second", right, y)):
        if np.abs(residual).max() <= 1e-10 * np.ptp(column):
            raise ValueError(f"the controls determine the {name} column: nothing is left to correlate")
    r = float(_row_correlations(left[None], right[None])[0])
    freedom = count - 2 - width
    p = 2 * float(stats.t.sf(abs(r) * np.sqrt(freedom / max(1 - r**2, np.finfo(float).tiny)), freedom))
    low, high = _fisher_interval(r, 1 / (count - width - 3))
    return Correlation(r, count, p, low, high)


def permutation_p(x: ArrayLike, y: ArrayLike, draws: int = DRAWS, seed: int = 0) -> float:
    """Share of random pairings of x with y whose |r| is at least the observed one, the observed pairing counted: never below 1/(draws+1).

    Valid whenever pairs are exchangeable, which asks for independence but for no distribution; n! pairings bound it from below, so that
    with 3 pairs nothing reaches 0.05.
    """
    x, y = paired_columns(x, y)
    shuffled = np.random.default_rng(seed).permuted(np.tile(y, (draws, 1)), axis=1)
    null = np.abs(_row_correlations(np.broadcast_to(x, shuffled.shape), shuffled))
    observed = abs(float(stats.pearsonr(x, y).statistic))
    # A pairing equal to the observed one gives the same r but for rounding.
    return exceedance_p(observed * (1 - 1e-12), null)


def _fisher_interval(r: float, variance: float) -> tuple[float, float]:
    """tanh(atanh r ± 1.96 √variance)."""
    if abs(r) == 1:
        return r, r
    margin = float(stats.norm.ppf(1 - TAIL)) * np.sqrt(variance)
    return float(np.tanh(np.arctanh(r) - margin)), float(np.tanh(np.arctanh(r) + margin))


def _row_correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = _standardised(x), _standardised(y)
    return np.clip((x * y).sum(axis=1), -1, 1)


def _standardised(rows: np.ndarray) -> np.ndarray:
    """Of mean 0 and length 1, each row."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    # By the largest first, so that no square underflows.
    rows = rows / np.abs(rows).max(axis=1, keepdims=True)
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))
