"""Two sets of quantities from the same documents: differences and ratios of their means, their largest, their ranges.

The `JointEstimates` hold the quantities of the left set, and then those of the right one in the same order. Each set has its own largest
quantity. Since max a − max b = minⱼ maxᵢ (aᵢ − bⱼ), its lower end is the least, over every j that may be the largest of the right set, of
the lower end of maxᵢ (aᵢ − bⱼ): an intersection-union test over the test of `extremes`. The upper end is that of the sets exchanged. A ratio
is any r for which max a − r max b may be zero (Fieller 1954). Every interval contains its estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from laaciq.stats.estimate import Estimate
from laaciq.stats.extremes import TAIL, band_factor, lower_end, slack, small_sample_factor, working_scale
from laaciq.stats.joint import JointEstimates

# A quantity of the right set may be its largest if it is within so many standard errors of it.
CANDIDATE_ERRORS = 2.0
# A ratio beyond this is given as infinite.
LARGEST_RATIO = 1e3

# The lower end of a statistic of the left set minus that of the right one.
LowerEnd = Callable[[JointEstimates, np.ndarray], float]
Statistic = Callable[[np.ndarray], float]


def mean_difference(joint: JointEstimates) -> Estimate:
    return _difference(joint, _no_noise(joint), np.mean, _mean_lower_end)


def mean_ratio(joint: JointEstimates) -> Estimate:
    return _ratio(joint, _no_noise(joint), np.mean, _mean_lower_end)


def maximum_difference(joint: JointEstimates, *, draws: int, seed: int) -> Estimate:
    return _difference(joint, joint.noise(draws, seed), np.max, _maximum_lower_end)


def maximum_ratio(joint: JointEstimates, *, draws: int, seed: int) -> Estimate:
    return _ratio(joint, joint.noise(draws, seed), np.max, _maximum_lower_end)


def range_difference(joint: JointEstimates, *, draws: int, seed: int) -> Estimate:
    return _difference(joint, joint.noise(draws, seed), np.ptp, _range_lower_end)


def range_ratio(joint: JointEstimates, *, draws: int, seed: int) -> Estimate:
    ratio = _ratio(joint, joint.noise(draws, seed), np.ptp, _range_lower_end)
    # A range is never negative.
    return Estimate(value=ratio.value, low=max(0.0, ratio.low), high=ratio.high)


def _difference(joint: JointEstimates, noise: np.ndarray, of: Statistic, lower: LowerEnd) -> Estimate:
    left, right = np.split(joint.values, 2)
    return Estimate(value=float(of(left) - of(right)), low=lower(joint, noise), high=-lower(*_exchanged(joint, noise)))


def _ratio(joint: JointEstimates, noise: np.ndarray, of: Statistic, lower: LowerEnd) -> Estimate:
    left, right = np.split(joint.values, 2)
    value = float(of(left) / of(right))

    def low(ratio: float, weight: float = 1.0) -> float:
        return lower(*_weighted(joint, noise, weight, ratio))

    def high(ratio: float, weight: float = 1.0) -> float:
        return -lower(*_exchanged(*_weighted(joint, noise, weight, ratio)))

    # Ends of the right statistic alone: minus those of 0·left − right.
    smallest, largest = -high(1.0, 0.0), -low(1.0, 0.0)
    # Where the left statistic may be negative, its end over that of the right one.
    lowest = low(0.0) / smallest if smallest > 0 else -math.inf
    if low(0.0) > 0:
        lowest = _root(low, value, 0.0)
    if smallest <= 0:
        highest = math.inf
    elif high(0.0) <= 0:
        highest = high(0.0) / largest
    else:
        reach = max(2 * value, 1e-6)
        while high(reach) > 0 and reach < LARGEST_RATIO:
            reach *= 2
        highest = _root(high, max(0.0, value), reach) if high(reach) <= 0 else math.inf
    return Estimate(value=value, low=min(value, lowest), high=max(value, highest))


def _root(end: Callable[[float], float], estimate: float, beyond: float) -> float:
    """Where an end is zero between the estimate and a ratio beyond it; the estimate itself where there is no noise."""
    return estimate if end(estimate) * end(beyond) > 0 else float(brentq(end, estimate, beyond, rtol=1e-3))


def _exchanged(joint: JointEstimates, noise: np.ndarray) -> tuple[JointEstimates, np.ndarray]:
    order = np.roll(np.arange(len(joint.values)), len(joint.values) // 2)
    parts = tuple((covariance[np.ix_(order, order)], freedom) for covariance, freedom in joint.parts)
    return JointEstimates(joint.values[order], parts), noise[:, order]


def _weighted(joint: JointEstimates, noise: np.ndarray, left: float, right: float) -> tuple[JointEstimates, np.ndarray]:
    slopes = np.repeat([left, right], len(joint.values) // 2)
    return joint.scaled(slopes), noise * slopes


def _no_noise(joint: JointEstimates) -> np.ndarray:
    return np.zeros((1, len(joint.values)))


def _mean_lower_end(joint: JointEstimates, noise: np.ndarray) -> float:
    """Student's, of a linear combination; no noise is drawn."""
    count = len(joint.values) // 2
    combined = joint.linear(np.repeat([1.0, -1.0], count)[None] / count)
    return float(combined.values[0] - combined.margins(TAIL)[0])


def _maximum_lower_end(joint: JointEstimates, noise: np.ndarray) -> float:
    count = len(joint.values) // 2
    right, errors = joint.values[count:], joint.standard_errors[count:]
    candidates = np.flatnonzero(right + CANDIDATE_ERRORS * errors >= right.max())
    itself = joint.linear(np.hstack([np.eye(count), -np.eye(count)])).variances
    ends = []
    for chosen in candidates:
        contrasts = np.hstack([np.eye(count), np.zeros((count, count))])
        contrasts[:, count + chosen] = -1.0
        against = joint.linear(contrasts)
        # A language against itself shares more of its noise than against another one.
        typical = np.full(count, np.median(against.variances))
        typical[chosen] = np.median(itself)
        scale = working_scale(against.variances, against.freedom, typical)
        ends.append(lower_end(against, noise @ contrasts.T, scale))
    return min(ends)


def _range_lower_end(joint: JointEstimates, noise: np.ndarray) -> float:
    """Against the two observed extremes of the right set: scales are nearly equal, so that no other two would be much lower."""
    count = len(joint.values) // 2
    # The mean of each set cancels in its range, and its noise with it.
    centring = np.kron(np.eye(2), np.eye(count) - 1 / count)
    centred, noise = joint.linear(centring), noise @ centring
    typical = np.repeat([np.median(variances) for variances in np.split(centred.variances, 2)], count)
    scale, other_scale = np.split(working_scale(centred.variances, centred.freedom, typical), 2)
    values, others = np.split(centred.values, 2)
    errors, here, there = centred.standard_errors[:count], noise[:, :count], noise[:, count:]
    top, bottom = int(others.argmax()), int(others.argmin())
    upward = here + slack(values, here, scale, errors)
    downward = here - slack(-values, -here, scale, errors)
    # The right set's noise and scale are shared out between the two ends of the left one.
    beside = (there[:, [top]] - there[:, [bottom]]) / 2
    wider = scale + (other_scale[top] + other_scale[bottom]) / 2
    factor, share = band_factor(upward - beside, downward + beside, wider)
    ends = np.bincount([top, bottom], minlength=count) / 2
    factor *= small_sample_factor(centred, np.concatenate([share, ends]) / 2)
    lowest = (values - factor * wider).max() - (values + factor * wider).min()
    return float(lowest - np.ptp(others))
