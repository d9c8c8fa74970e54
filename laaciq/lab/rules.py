"""How a statistic becomes a finding: from its standard error, its interval, or draws of its distribution.

Every rule holds a value against the threshold of a claim. The claim's null is that the true value is the threshold or lies beyond it, so the
p of a rule bounds both errors: to call a claim supported, and to call it refuted. All work on the scale on which noise is near normal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from laaciq.lab.findings import Finding, Plot, Scale, Side, TooFew
from laaciq.stats.estimate import TAIL, Estimate

# Fewer languages decide nothing, nor do more of them that are related.
FEWEST, FEWEST_INDEPENDENT = 8, 5
_NORMAL = float(stats.norm.ppf(1 - TAIL))
# A threshold this many standard errors away is surely excluded. Far beyond, scipy's noncentral t is NaN.
_FAR = 1e6
# The power of equivalence is a mean over this many equally likely standard errors: exact to 0.001.
_QUANTILES = (np.arange(1000) + 0.5) / 1000


class Claimed(TypedDict):
    """What a claim says of its statistic, fixed in code: where the threshold is, and the size that is claimed."""

    statistic: str
    threshold: float
    side: Side
    claimed: float


def from_error(
    value: float,
    error: float,
    *,
    freedom: float,
    claim: Claimed,
    languages: int,
    independent: float | None = None,
    scale: Scale = "plain",
    plot: Plot | None = None,
    note: str = "",
) -> Finding:
    """A value with a standard error on `scale`, by Student's t. A standard error of 0 is a value that is known exactly."""
    centre = forward(value, scale)
    quantile = float(stats.t.ppf(1 - TAIL, freedom))
    ends = [backward(centre + sign * quantile * error, scale) for sign in (-1, 1)]
    distance = min(abs(centre - threshold) for threshold in _thresholds(claim, scale))
    exact = error == 0
    return Finding(
        **claim,
        estimate=Estimate(value=value, low=min(value, ends[0]), high=max(value, ends[1])),
        scale=scale,
        standard_error=error,
        p=float(distance == 0) if exact else min(1.0, 2 * float(stats.t.sf(distance / error, freedom))),
        power=1.0 if exact else _power(claim, scale, error, freedom),
        languages=languages,
        independent=float(languages if independent is None else independent),
        plot=plot,
        note=note,
    )


def from_interval(
    estimate: Estimate,
    *,
    claim: Claimed,
    languages: int,
    independent: float | None = None,
    scale: Scale = "plain",
    plot: Plot | None = None,
    note: str = "",
) -> Finding:
    """A value with an interval that need not be symmetric. p is the one that the end towards the threshold implies (Altman & Bland 2011);
    of a range, the larger one of its two thresholds (two one-sided tests, Schuirmann 1987)."""
    centre = forward(estimate.value, scale)
    low, high = (forward(end, scale) for end in (estimate.low, estimate.high))
    below, above = (centre - low) / _NORMAL, (high - centre) / _NORMAL
    # An end that was moved to the value, so that the interval contains it, says nothing of noise: the other end stands for it.
    below, above = below or above, above or below
    whole = (below + above) / 2
    thresholds = _thresholds(claim, scale)
    return Finding(
        **claim,
        estimate=estimate,
        scale=scale,
        standard_error=whole if math.isfinite(whole) else None,
        p=max(_p(threshold - centre, above if centre < threshold else below) for threshold in thresholds),
        power=_interval_power(claim, scale, below, above),
        languages=languages,
        independent=float(languages if independent is None else independent),
        plot=plot,
        note=note,
    )


def from_draws(
    value: float, draws: ArrayLike, *, claim: Claimed, languages: int, plot: Plot | None = None, note: str = ""
) -> Finding:
    """A value and its distribution over resamples, such as a rank. p is twice the share of draws beyond the threshold."""
    drawn = np.asarray(draws, dtype=float)
    if claim["side"] == "within":
        raise ValueError("draws are held against one threshold: give a claim that is below or above it")
    low, high = (float(np.quantile(drawn, share)) for share in (TAIL, 1 - TAIL))
    beyond = min((drawn <= claim["threshold"]).mean(), (drawn >= claim["threshold"]).mean())
    # The deviation of equal numbers is not always rounded to 0.
    error = float(drawn.std(ddof=1)) if np.ptp(drawn) > 0 else 0.0
    return Finding(
        **claim,
        estimate=Estimate(value=value, low=min(value, low), high=max(value, high)),
        scale="plain",
        standard_error=error,
        p=min(1.0, 2 * float((1 + beyond * len(drawn)) / (1 + len(drawn)))),
        power=_interval_power(claim, "plain", error, error),
        languages=languages,
        independent=float(languages),
        plot=plot,
        note=note,
    )


def exactly(value: float, *, claim: Claimed, note: str = "", plot: Plot | None = None) -> Finding:
    """A property of the weights, which has no noise."""
    return from_error(value, 0.0, freedom=1, claim=claim, languages=0, note=note, plot=plot)


def holds(finding: Finding) -> bool:
    """True if the estimate lies where the claim says."""
    centre, scale = forward(finding.estimate.value, finding.scale), finding.scale
    threshold = forward(finding.threshold, scale)
    if finding.side == "within":
        return abs(centre) < threshold
    return centre < threshold if finding.side == "below" else centre > threshold


def require_languages(count: int) -> None:
    if count < FEWEST:
        raise TooFew(f"{count} languages are too few", f"at least {FEWEST} are needed")


def require_independent(count: float) -> None:
    if count < FEWEST_INDEPENDENT:
        raise TooFew(
            f"the languages count as {count:.1f} independent ones", f"at least {FEWEST_INDEPENDENT}: more families"
        )


def forward(value: float, scale: Scale) -> float:
    if scale == "atanh":
        return math.atanh(min(max(value, -1 + 1e-15), 1 - 1e-15))
    if scale == "log":
        return math.log(value) if value > 0 else -math.inf
    return value


def backward(value: float, scale: Scale) -> float:
    if scale == "atanh":
        return math.tanh(value)
    return math.exp(min(value, 700.0)) if scale == "log" else value


def _thresholds(claim: Claimed, scale: Scale) -> list[float]:
    """On the scale: both ends of the range for a claim that is within one."""
    threshold = forward(claim["threshold"], scale)
    return [-threshold, threshold] if claim["side"] == "within" else [threshold]


def _p(distance: float, error: float) -> float:
    """Two-sided p of a threshold at this distance; 1 if the interval is open towards it."""
    if not math.isfinite(error):
        return 1.0
    return float(distance == 0) if error == 0 else min(1.0, 2 * float(stats.norm.sf(abs(distance) / error)))


def _power(claim: Claimed, scale: Scale, error: float, freedom: float) -> float:
    """The probability that an interval by Student's t excludes the thresholds, on the claimed side, if the true value is the claimed one."""
    quantile = float(stats.t.ppf(1 - TAIL, freedom))
    distances = list(_claimed_distances(claim, scale))
    if len(distances) == 1:
        return float(stats.nct.sf(quantile, freedom, min(abs(distances[0]) / error, _FAR)))
    # The standard error varies about the true one as χ/√df does; given it, the estimate is normal, and must leave room on both sides.
    margin = quantile * np.sqrt(stats.chi2.ppf(_QUANTILES, freedom) / freedom)
    lower, upper = (distance / error for distance in distances)
    inside = stats.norm.cdf(upper - margin) - stats.norm.cdf(lower + margin)
    return float(np.maximum(0.0, inside).mean())


def _interval_power(claim: Claimed, scale: Scale, below: float, above: float) -> float:
    """The same of an interval whose ends have errors of their own: what counts is the end that must exclude a threshold."""
    shares = [_excluded(distance, above if distance > 0 else below) for distance in _claimed_distances(claim, scale)]
    # Both ends of a range are missed by chance in opposite directions, so that their probabilities add.
    return max(0.0, 1 - sum(1 - share for share in shares))


def _excluded(distance: float, error: float) -> float:
    """The probability that the end towards a threshold at this distance from the true value excludes it; 0 if that end is open."""
    if not math.isfinite(error):
        return 0.0
    return 1.0 if error == 0 else float(stats.norm.sf(_NORMAL - abs(distance) / error))


def _claimed_distances(claim: Claimed, scale: Scale) -> Iterator[float]:
    """From the claimed value to each threshold."""
    claimed = forward(claim["claimed"], scale)
    return (threshold - claimed for threshold in _thresholds(claim, scale))
