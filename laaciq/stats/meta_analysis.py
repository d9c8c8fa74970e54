"""One effect, estimated in several studies (models, families, texts): its mean, and how much it differs between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import minimize_scalar

from laaciq.stats.columns import column
from laaciq.stats.estimate import TAIL

Method = Literal["dersimonian-laird", "reml"]
Interval = Literal["normal", "hartung-knapp", "modified-hartung-knapp"]


@dataclass(frozen=True)
class MetaAnalysis:
    """The mean effect over studies, and its 95 % interval. `between_variance` is τ², `inconsistency` I², the share of τ² in the variance.

    `heterogeneity_p` tests τ² = 0 by Cochran's `heterogeneity` Q on k − 1 degrees of freedom.
    """

    mean: float
    standard_error: float
    low: float
    high: float
    p: float
    between_variance: float
    heterogeneity: float
    heterogeneity_p: float
    inconsistency: float
    studies: int


def pool_effects(
    effects: ArrayLike, variances: ArrayLike, *, method: Method = "reml", interval: Interval = "hartung-knapp"
) -> MetaAnalysis:
    """Random effects: effectᵢ ~ N(μ, τ² + vᵢ), with known vᵢ; μ̂ is the mean with weights 1/(τ² + vᵢ).

    *dersimonian-laird* is the moment estimate max(0, (Q − (k−1)) / (Σw − Σw²/Σw)), w = 1/v (DerSimonian & Laird 1986); *reml* maximises the
    restricted likelihood, −½Σ ln(τ²+v) − ½ ln Σw − ½Σ w(y−μ̂)² (Viechtbauer 2005).

    Intervals: *normal* is μ̂ ± 1.96/√Σw, which covers too seldom below some 20 studies (docs/statistics.md);
    *hartung-knapp* takes Student's t on k − 1 degrees of freedom and the weighted variance of the effects
    (Hartung & Knapp 2001). Two or three effects can agree by chance, and its interval is then far narrower than their own errors allow:
    *modified-hartung-knapp* never takes a standard error below that of *normal* (Röver, Knapp & Friede 2015; metafor's test="adhoc").
    Correlations go in as atanh r with variance 1/(n − 3).
    """
    y, v = (
        column(effects, least=2, name="the column of effects"),
        column(variances, least=2, name="the column of variances"),
    )
    if y.shape != v.shape:
        raise ValueError(f"{len(y)} effects have {len(v)} variances: give one for each")
    if not (v > 0).all():
        raise ValueError("a variance is above zero")
    count = len(y)
    heterogeneity, scale = _cochran(y, v)
    moment = max(0.0, (heterogeneity - (count - 1)) / scale)
    between = moment if method == "dersimonian-laird" else _restricted_maximum(y, v)
    weights = 1 / (between + v)
    mean = float(weights @ y / weights.sum())
    # Student's t on infinitely many degrees of freedom is the normal distribution.
    error, freedom = float(1 / np.sqrt(weights.sum())), np.inf
    if interval != "normal":
        # √q, the ratio of the error that the effects show to the one that their variances imply.
        inflation = float(np.sqrt(weights @ (y - mean) ** 2 / (count - 1)))
        error *= inflation if interval == "hartung-knapp" else max(1.0, inflation)
        freedom = count - 1
    margin = float(stats.t.ppf(1 - TAIL, freedom)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, freedom)) if error > 0 else float(mean == 0)
    # The typical variance within studies (Higgins & Thompson 2002).
    within = (count - 1) / scale
    return MetaAnalysis(
        mean=mean,
        standard_error=error,
        low=mean - margin,
        high=mean + margin,
        p=p,
        between_variance=between,
        heterogeneity=heterogeneity,
        heterogeneity_p=float(stats.chi2.sf(heterogeneity, count - 1)),
        inconsistency=between / (between + within),
        studies=count,
    )


def _cochran(y: np.ndarray, v: np.ndarray) -> tuple[float, float]:
    """Q = Σ w (y − ȳ)², and Σw − Σw²/Σw, by which τ² raises its expectation."""
    weights = 1 / v
    mean = weights @ y / weights.sum()
    return float(weights @ (y - mean) ** 2), float(weights.sum() - (weights**2).sum() / weights.sum())


def _restricted_maximum(y: np.ndarray, v: np.ndarray) -> float:
    def deviance(between: float) -> float:
        weights = 1 / (between + v)
        mean = weights @ y / weights.sum()
        return float(-np.log(weights).sum() + np.log(weights.sum()) + weights @ (y - mean) ** 2)

    # τ² of equal weights and no noise within studies is the variance of the effects: no estimate is beyond a few times that.
    most = 10 * float(y.var(ddof=1)) + float(v.max())
    found = minimize_scalar(deviance, bounds=(0.0, most), method="bounded", options={"xatol": 1e-10 * most})
    return float(found.x) if deviance(float(found.x)) < deviance(0.0) else 0.0
