"""How a statistic becomes a finding: from its standard error, its interval, or draws of its distribution.

Every rule holds a value against the threshold of a claim. The claim's null is that the true value is the threshold or lies beyond it, so the
p of a rule bounds both errors: to call a claim supported, and to call it refuted. All work on the scale on which noise is near normal.
"""

from __future__ import annotations

import math
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from laaciq.lab.findings import Finding, Plot, Scale, Side, TooFew
from laaciq.stats.estimate import TAIL, Estimate

# Fewer languages decide nothing, nor do more of them that are related.
FEWEST, FEWEST_INDEPENDENT = 8, 5
_NORMAL = float(stats.norm.ppf(1 - TAIL))


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
    distance = _distance(centre, claim, scale)
    exact = error == 0
    return Finding(
        **claim,
        estimate=Estimate(value=value, low=min(value, ends[0]), high=max(value, ends[1])),
        scale=scale,
        standard_error=error,
        p=float(distance == 0) if exact else min(1.0, 2 * float(stats.t.sf(distance / error, freedom))),
        power=1.0 if exact else _power(claim, scale, error, quantile),
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
    """A value with an interval that need not be symmetric. p is the one that the end towards the threshold implies (Altman & Bland 2011)."""
    centre = forward(estimate.value, scale)
    low, high = (forward(end, scale) for end in (estimate.low, estimate.high))
    towards = high if _above(centre, claim, scale) is False else low
    error = abs(towards - centre) / _NORMAL
    known = math.isfinite(error)
    whole = (high - low) / (2 * _NORMAL)
    if not known:
        p = 1.0
    elif error == 0:
        p = float(_distance(centre, claim, scale) == 0)
    else:
        p = min(1.0, 2 * float(stats.norm.sf(_distance(centre, claim, scale) / error)))
    return Finding(
        **claim,
        estimate=estimate,
        scale=scale,
        standard_error=whole if math.isfinite(whole) else None,
        p=p,
        power=_power(claim, scale, error, _NORMAL) if known and error > 0 else float(known),
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
    error = float(drawn.std(ddof=1))
    return Finding(
        **claim,
        estimate=Estimate(value=value, low=min(value, low), high=max(value, high)),
        scale="plain",
        standard_error=error,
        p=min(1.0, 2 * float((1 + beyond * len(drawn)) / (1 + len(drawn)))),
        power=_power(claim, "plain", error, _NORMAL) if error > 0 else 1.0,
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


def _above(centre: float, claim: Claimed, scale: Scale) -> bool:
    """True if the value lies above the threshold that is nearest to it."""
    threshold = forward(claim["threshold"], scale)
    if claim["side"] == "within":
        return centre > threshold or -threshold < centre <= 0
    return centre > threshold


def _distance(centre: float, claim: Claimed, scale: Scale) -> float:
    threshold = forward(claim["threshold"], scale)
    return abs((abs(centre) if claim["side"] == "within" else centre) - threshold)


def _power(claim: Claimed, scale: Scale, error: float, quantile: float) -> float:
    """The probability that the interval excludes the threshold, on the claimed side, if the true value is the claimed one."""
    claimed, threshold = forward(claim["claimed"], scale), forward(claim["threshold"], scale)
    margin = quantile * error
    if claim["side"] == "within":
        inside = stats.norm.cdf((threshold - margin - claimed) / error)
        return float(max(0.0, inside - stats.norm.cdf((margin - threshold - claimed) / error)))
    return float(stats.norm.sf((margin - abs(claimed - threshold)) / error))
