"""Bootstrap intervals of any statistic of a table, over rows, over clusters of rows, or over both levels.

A row is one observation with all its columns, so that what is paired stays paired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from laaciq.stats.columns import group_places
from laaciq.stats.estimate import TAIL

DRAWS = 10_000
# Of draws without a value, such as the correlation of a constant column; more than this share is refused.
MOST_UNDEFINED = 0.1

Kind = Literal["percentile", "basic", "bca", "studentized"]
# Of a table, one or several.
Statistics = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class BootstrapInterval:
    """A statistic, the standard deviation of its resamples, and its 95 % interval, which need not contain the value."""

    value: float
    standard_error: float
    low: float
    high: float
    units: int
    draws: int


@dataclass(frozen=True)
class _Units:
    """What is drawn: the rows of every unit. With `within`, rows of a drawn unit are drawn again."""

    places: list[np.ndarray]
    within: bool

    def drawn(self, random: np.random.Generator) -> list[np.ndarray]:
        chosen = [self.places[unit] for unit in random.integers(len(self.places), size=len(self.places))]
        if not self.within:
            return chosen
        return [rows[random.integers(len(rows), size=len(rows))] for rows in chosen]


def bootstrap(
    rows: ArrayLike,
    statistic: Callable[[np.ndarray], float],
    *,
    kind: Kind = "bca",
    clusters: ArrayLike | None = None,
    within_clusters: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> BootstrapInterval:
    """The 95 % interval of `statistic(rows)`, by resampling.

    - Paired: without `clusters`, rows are drawn with replacement.
    - Clustered: whole clusters are drawn, such as documents with their passages or families with their languages.
    - Hierarchical: with `within_clusters`, clusters are drawn and then rows within each drawn cluster.

    With θ̂ the value and q the quantiles of the resampled θ*: *percentile* is [q(.025), q(.975)]; *basic* is [2θ̂ − q(.975), 2θ̂ − q(.025)];
    *bca* takes percentiles Φ(z₀ + (z₀ + z)/(1 − a(z₀ + z))), with z₀ from the share of θ* below θ̂ and a from the skewness of the jackknife over
    units (Efron 1987); *studentized* is θ̂ − s·q of (θ* − θ̂)/s*, with jackknife standard errors s and s* (Davison & Hinkley 1997, ch. 5). It
    evaluates the statistic once per draw and unit.

    Valid for independent units and a statistic that is smooth in them: means, correlations, ratios; not for a maximum or a range
    (`laaciq.stats.extremes`). Below some 20 units all kinds but the studentized one are too narrow (docs/statistics.md), and drawing
    within clusters adds the variance within a second time, so that it is too wide where clusters hardly differ. Draws in which the
    statistic is not finite are left out.
    """
    (interval,) = bootstrap_each(
        rows,
        lambda table: np.array([statistic(table)]),
        kind=kind,
        clusters=clusters,
        within_clusters=within_clusters,
        draws=draws,
        seed=seed,
    )
    return interval


def bootstrap_each(
    rows: ArrayLike,
    statistics: Statistics,
    *,
    kind: Kind = "bca",
    clusters: ArrayLike | None = None,
    within_clusters: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[BootstrapInterval]:
    """`bootstrap` of several statistics of the same resamples."""
    table = np.asarray(rows, dtype=float)
    count = len(table)
    if count < 2 or not np.isfinite(table).all():
        raise ValueError("a bootstrap needs at least two rows of finite numbers")
    if within_clusters and clusters is None:
        raise ValueError("drawing within clusters needs the clusters: give one name per row")
    places = [np.array([row]) for row in range(count)] if clusters is None else group_places(clusters, count)
    if len(places) < 2:
        raise ValueError("a bootstrap needs at least two clusters")
    units, random = _Units(places, within_clusters), np.random.default_rng(seed)
    values = statistics(table)
    if not np.isfinite(values).all():
        raise ValueError("the statistic of the rows is not a finite number")
    samples = [units.drawn(random) for _ in range(draws)]
    resampled = np.array([statistics(table[np.concatenate(sample)]) for sample in samples])
    left_out = _leave_one_out(table, statistics, places) if kind in ("bca", "studentized") else None
    errors = np.ones_like(resampled)
    if kind == "studentized":
        errors = np.array([_jackknife_error(_leave_one_out(table, statistics, sample)) for sample in samples])
    defined = np.isfinite(resampled).all(1) & np.isfinite(errors).all(1) & (errors > 0).all(1)
    if (undefined := 1 - defined.mean()) > MOST_UNDEFINED:
        raise ValueError(f"the statistic or its error has no value in {undefined:.0%} of the resamples: give more rows")
    resampled, errors = resampled[defined], errors[defined]
    return [
        BootstrapInterval(
            float(value),
            float(resampled[:, k].std(ddof=1)),
            *_ends(kind, float(value), resampled[:, k], errors[:, k], None if left_out is None else left_out[:, k]),
            units=len(places),
            draws=len(resampled),
        )
        for k, value in enumerate(values)
    ]


def _ends(
    kind: Kind, value: float, resampled: np.ndarray, errors: np.ndarray, left_out: np.ndarray | None
) -> tuple[float, float]:
    """`left_out` holds the statistic without each unit, for the kinds that need it."""
    if kind == "basic":
        low, high = 2 * value - np.quantile(resampled, [1 - TAIL, TAIL])
    elif left_out is None:
        low, high = np.quantile(resampled, [TAIL, 1 - TAIL])
    elif kind == "bca":
        low, high = np.quantile(resampled, _bca_levels(value, resampled, left_out))
    else:
        low, high = value - _jackknife_error(left_out) * np.quantile((resampled - value) / errors, [1 - TAIL, TAIL])
    return float(low), float(high)


def _leave_one_out(table: np.ndarray, statistics: Statistics, units: list[np.ndarray]) -> np.ndarray:
    without = (np.concatenate(units[:place] + units[place + 1 :]) for place in range(len(units)))
    return np.array([statistics(table[rows]) for rows in without])


def _jackknife_error(left_out: np.ndarray) -> np.ndarray:
    """√((n−1)/n Σ(θ̂₋ᵢ − mean)²) (Tukey 1958)."""
    count = len(left_out)
    return np.sqrt((count - 1) / count * ((left_out - left_out.mean(0)) ** 2).sum(0))


def _bca_levels(value: float, resampled: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    # Half of the ties are below; R's `boot.ci` counts none of them.
    below = ((resampled < value).mean() + (resampled <= value).mean()) / 2
    bias = float(ndtri(np.clip(below, 0.5 / len(resampled), 1 - 0.5 / len(resampled))))
    deviation = left_out.mean() - left_out
    square = (deviation**2).sum()
    acceleration = (deviation**3).sum() / (6 * square**1.5) if square > 0 else 0.0
    shifted = bias + ndtri(np.array([TAIL, 1 - TAIL]))
    return np.asarray(ndtr(bias + shifted / (1 - acceleration * shifted)))
