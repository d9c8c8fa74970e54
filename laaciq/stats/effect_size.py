"""How far two groups lie apart, with 95 % intervals. Above zero, the left group is larger."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import brentq
from scipy.special import gammaln

from laaciq.stats.columns import column
from laaciq.stats.estimate import TAIL, Estimate

# No |d| beyond this is looked for.
_FARTHEST = 1e3


def cohens_d(left: ArrayLike, right: ArrayLike) -> Estimate:
    """d = (mean left − mean right) / pooled standard deviation (Cohen 1988).

    The interval inverts the noncentral t: t = d·√(nm/(n+m)) on n + m − 2 degrees of freedom (Steiger & Fouladi 1997). It is exact for
    independent normal values of one variance. d itself is too large by 1/J (`hedges_g`).
    """
    left, right = _groups(left, right)
    freedom = len(left) + len(right) - 2
    pooled = np.sqrt((left.var() * len(left) + right.var() * len(right)) / freedom)
    if not pooled > 0:
        raise ValueError("both groups are constant: no standardised difference exists")
    value = float((left.mean() - right.mean()) / pooled)
    scale = np.sqrt(len(left) * len(right) / (len(left) + len(right)))
    low, high = (_noncentrality(value * scale, freedom, share) / scale for share in (1 - TAIL, TAIL))
    return Estimate(value=value, low=low, high=high)


def hedges_g(left: ArrayLike, right: ArrayLike) -> Estimate:
    """g = J·d with J = Γ(f/2) / (√(f/2) Γ((f−1)/2)), f = n + m − 2: unbiased where `cohens_d` is exact (Hedges 1981)."""
    left, right = _groups(left, right)
    half = (len(left) + len(right) - 2) / 2
    if half <= 0.5:
        raise ValueError("two groups of three values in all have no unbiased difference: give more values")
    factor = float(np.exp(gammaln(half) - gammaln(half - 0.5)) / np.sqrt(half))
    d = cohens_d(left, right)
    return Estimate(value=factor * d.value, low=factor * d.low, high=factor * d.high)


def cliffs_delta(left: ArrayLike, right: ArrayLike) -> Estimate:
    """δ = P(left > right) − P(left < right), over all pairs of a left with a right value; needs no distribution (Cliff 1993).

    The interval is asymmetric, within [−1, 1], with Student's t on n + m − 2 degrees of freedom (Feng & Cliff 2004). Where the groups do not
    overlap (|δ| = 1) the near end is (k − t²)/(k + t²) for the smaller group's size k.
    """
    left, right = _groups(left, right)
    n, m = len(left), len(right)
    dominance = np.sign(left[:, None] - right[None])
    delta = float(dominance.mean())
    by_left, by_right = dominance.mean(1), dominance.mean(0)
    spread = m**2 * ((by_left - delta) ** 2).sum() + n**2 * ((by_right - delta) ** 2).sum()
    variance = (spread - ((dominance - delta) ** 2).sum()) / (n * m * (n - 1) * (m - 1))
    # Cliff's lower bound: the unbiased variance may fall to zero or below. R's `effsize` has none.
    variance = max(float(variance), (1 - delta**2) / (n * m - 1))
    quantile = float(stats.t.ppf(1 - TAIL, n + m - 2))
    if abs(delta) == 1:
        # Feng & Cliff's; `effsize` takes δ a little below 1 instead.
        end = (min(n, m) - quantile**2) / (min(n, m) + quantile**2)
        low, high = sorted((delta * end, delta))
        return Estimate(value=delta, low=low, high=high)
    middle, square = delta - delta**3, quantile**2 * variance
    half = quantile * np.sqrt(variance) * np.sqrt((1 - delta**2) ** 2 + square)
    bottom = 1 - delta**2 + square
    low, high = float((middle - half) / bottom), float((middle + half) / bottom)
    return Estimate(value=delta, low=min(delta, max(-1.0, low)), high=max(delta, min(1.0, high)))


def _groups(left: ArrayLike, right: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    return column(left, least=2, name="the left group"), column(right, least=2, name="the right group")


def _noncentrality(t: float, freedom: int, share: float) -> float:
    """The noncentrality under which a share `share` of values lies below t."""

    def excess(noncentrality: float) -> float:
        return float(stats.nct.cdf(t, freedom, noncentrality)) - share

    width = 2.0
    while width < _FARTHEST and not (excess(t - width) > 0 > excess(t + width)):
        width *= 2
    if width >= _FARTHEST:
        raise ValueError(f"no interval exists for t = {t:g} on {freedom} degrees of freedom")
    return float(brentq(excess, t - width, t + width, xtol=1e-10))
