"""Intervals for the largest of several quantities, and for the largest minus the smallest.

Of noisy values the largest is too large on average, and more so the more quantities are nearly as large. Its bootstrap is not consistent where
several tie. These intervals hold whether quantities are equal, one stands apart, or they are graded (docs/statistics.md has the coverage):

- The lower end inverts a test: a maximum of c is rejected if some value exceeds c by more than noise would make the largest of all those
  exceed it that may be the maximum (moment inequalities: Chernozhukov, Lee & Rosen 2013; generalised selection: Andrews & Soares 2010).
- The upper end is the largest of the quantities' upper ends: whichever is the maximum, its upper end holds for it (intersection-union test).

Both ends contain the largest value. `noise` is Gaussian with the estimated covariance, (draws, quantities); ends are widened by Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtrit

from laaciq.stats.estimate import TAIL, Estimate
from laaciq.stats.joint import JointEstimates

# A quantity may be the maximum if it is within so many standard errors of the median-unbiased maximum; beyond, its distance counts.
NEAR = 1.0
# How many degrees of freedom the typical variance counts for in a scale: few documents make single variances too small by chance.
TYPICAL_FREEDOM = 20
# Draws that are enough for a median.
MEDIAN_DRAWS = 500
# Of an exponent; two documents may make an end that nothing can hold.
LARGEST = 700.0


@dataclass(frozen=True)
class RangeEstimate:
    """The largest minus the smallest. `noise_floor` is what noise alone may make of it: the value exceeds the floor exactly where the
    interval's lower end is above zero."""

    estimate: Estimate
    noise_floor: float


def maximum_estimate(joint: JointEstimates, noise: np.ndarray) -> Estimate:
    """max θᵢ, with its interval."""
    scale = working_scale(joint.variances, joint.freedom, np.median(joint.variances))
    return Estimate(
        value=float(joint.values.max()),
        low=lower_end(joint.values, joint.covariance, joint.freedom, noise, scale),
        high=float((joint.values + joint.margins(TAIL)[1]).max()),
    )


def range_estimate(joint: JointEstimates, noise: np.ndarray) -> RangeEstimate:
    """max D − min D for D = exp(θ) − 1; of a single quantity θ it is 0.

    Every quantity gets a band θ̂ᵢ ± k·wᵢ. Were all equal, some two bands would lie apart in 2.5 % of cases: if two do, the quantities
    differ beyond noise, and the lower end is the largest gap between bands, with k then computed for those that may be extreme alone.
    """
    if len(joint.values) == 1:
        return RangeEstimate(Estimate(value=0.0, low=0.0, high=0.0), 0.0)
    centred = joint.about_mean()
    noise = noise - noise.mean(1, keepdims=True)
    scale = working_scale(centred.variances, centred.freedom, np.median(centred.variances))
    value = float(np.ptp(np.expm1(joint.values)))

    def gap(upward: np.ndarray, downward: np.ndarray) -> float:
        factor, share = band_factor(noise + upward, noise - downward, scale)
        factor *= small_sample_factor(centred.covariance, centred.freedom, share)
        lowest, highest = joint.values - factor * scale, joint.values + factor * scale
        return float(np.expm1(lowest.max()) - np.expm1(highest.min()))

    none = np.zeros(len(joint.values))
    beyond = gap(none, none)
    low = 0.0
    if beyond > 0:
        near_top = slack(centred.values, noise, scale, centred.standard_errors)
        near_bottom = slack(-centred.values, -noise, scale, centred.standard_errors)
        low = max(beyond, gap(near_top, near_bottom))
    estimate = Estimate(value=value, low=low, high=_range_upper_end(joint))
    return RangeEstimate(estimate, value - beyond)


def working_scale(variances: np.ndarray, freedom: np.ndarray, typical: ArrayLike) -> np.ndarray:
    """The scales that noise is compared on: standard errors, shrunk towards a typical one. Never zero."""
    shrunk = (freedom * variances + TYPICAL_FREEDOM * np.asarray(typical)) / (freedom + TYPICAL_FREEDOM)
    return np.sqrt(np.maximum(shrunk, np.finfo(float).tiny))


def lower_end(
    values: np.ndarray, covariance: np.ndarray, freedom: np.ndarray, noise: np.ndarray, scale: np.ndarray
) -> float:
    """The lower end for max θᵢ: max (θ̂ᵢ − k·wᵢ), where k is the upper 2.5 % point of max (noiseᵢ + slackᵢ)/wᵢ."""
    errors = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    excess = (noise + slack(values, noise, scale, errors)) / scale
    share = np.bincount(excess.argmax(1), minlength=len(scale)) / len(noise)
    factor = max(0.0, float(np.quantile(excess.max(1), 1 - TAIL))) * small_sample_factor(covariance, freedom, share)
    return float((values - factor * scale).max())


def slack(values: np.ndarray, noise: np.ndarray, scale: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """How far each quantity is certainly below the maximum: 0 for those within `NEAR` standard errors of it, else negative.

    The maximum that values are held against is median-unbiased: the noise that makes it too large is computed for the very quantities that
    may be the maximum, from all of them to fewer and fewer, until that changes nothing.
    """
    noise = noise[:MEDIAN_DRAWS]
    shortfall = np.zeros(len(values))
    maximum = -np.inf
    for _ in range(20):
        factor = float(np.median(((noise + shortfall) / scale).max(1)))
        raised = float((values - factor * scale).max())
        if raised <= maximum + 1e-3 * scale.min():
            break
        maximum = raised
        shortfall = np.minimum(0.0, values + NEAR * errors - maximum)
    return shortfall


def small_sample_factor(covariance: np.ndarray, freedom: np.ndarray, share: np.ndarray) -> float:
    """By how much Student's t exceeds the normal at the tail: its degrees of freedom are those of the mean variance of the quantities that
    become the extreme, `share` of the time each. One language has those of its documents; many together have many more."""
    mean = float(share @ covariance.diagonal())
    weight = share / np.sqrt(freedom)
    spread = float(weight @ (covariance**2) @ weight)
    if spread <= 0 or mean <= 0:
        return 1.0
    # Rounding is all that varies where the formula gives less than any quantity has.
    return float(stdtrit(max(mean**2 / spread, freedom.min()), 1 - TAIL) / ndtri(1 - TAIL))


def band_factor(upward: np.ndarray, downward: np.ndarray, scale: np.ndarray) -> tuple[float, np.ndarray]:
    """The upper 2.5 % point of max (upwardᵢ − downwardⱼ)/(wᵢ + wⱼ), and how often each quantity is one of these two.

    The largest ratio is computed without all pairs: raise k until max (upwardᵢ − k wᵢ) meets min (downwardⱼ + k wⱼ) (Dinkelbach 1967).
    """
    rows = np.arange(len(upward))
    widest = np.zeros(len(upward))
    for _ in range(20):
        top = (upward - widest[:, None] * scale).argmax(1)
        bottom = (downward + widest[:, None] * scale).argmin(1)
        wider = (upward[rows, top] - downward[rows, bottom]) / (scale[top] + scale[bottom])
        if np.all(wider <= widest * (1 + 1e-9)):
            break
        widest = np.maximum(widest, wider)
    winners = np.concatenate([top, bottom])
    return float(np.quantile(widest, 1 - TAIL)), np.bincount(winners, minlength=len(scale)) / len(winners)


def _range_upper_end(joint: JointEstimates) -> float:
    """The largest upper end of any difference Dᵢ − Dⱼ, recovered from those of Dᵢ and Dⱼ and their correlation (Zou & Donner 2008)."""
    (below, above), errors = joint.margins(TAIL), joint.standard_errors
    degradation = np.expm1(joint.values)
    upward = np.expm1(np.minimum(joint.values + above, LARGEST)) - degradation
    downward = degradation - np.expm1(joint.values - below)
    products = np.outer(errors, errors)
    correlation = joint.covariance / np.where(products > 0, products, 1)
    square = upward[:, None] ** 2 + downward[None] ** 2 - 2 * correlation * np.outer(upward, downward)
    differences = degradation[:, None] - degradation[None] + np.sqrt(np.maximum(square, 0))
    np.fill_diagonal(differences, 0.0)
    return float(differences.max())
