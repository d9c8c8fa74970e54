"""The difference and the ratio of a statistic of two sets of quantities that were estimated from the same documents.

Both ends come from one function: the lower end of left − r·right. The upper end is that of the sets exchanged. The ratio is any r for which
left − r·right may be zero (Fieller 1954). Every interval contains its estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq

from laaciq.stats.estimate import TAIL, Estimate
from laaciq.stats.joint import JointEstimates

# A ratio beyond this is given as infinite, one below its inverse as zero.
LARGEST_RATIO = 1e3


@dataclass(frozen=True)
class Sides:
    """Quantities of a left set, and then those of a right set in the same order, with draws of their noise."""

    joint: JointEstimates
    noise: np.ndarray

    @property
    def size(self) -> int:
        return len(self.joint.values) // 2

    @property
    def values(self) -> tuple[np.ndarray, np.ndarray]:
        return self.joint.values[: self.size], self.joint.values[self.size :]

    @property
    def exchanged(self) -> Sides:
        order = np.roll(np.arange(2 * self.size), self.size)
        return Sides(self.joint.reordered(order), self.noise[:, order])


# Of each side.
Statistic = Callable[[np.ndarray], float]
# For a ratio r, the lower end of the left side's statistic minus r times the right side's.
LowerEnd = Callable[[float], float]


def difference(sides: Sides, statistic: Statistic, lower: Callable[[Sides], LowerEnd]) -> Estimate:
    left, right = (float(statistic(values)) for values in sides.values)
    value = left - right
    return Estimate(value=value, low=min(value, lower(sides)(1.0)), high=max(value, -lower(sides.exchanged)(1.0)))


def ratio(sides: Sides, statistic: Statistic, lower: Callable[[Sides], LowerEnd]) -> Estimate:
    """The upper end is infinite where the right statistic may be zero, and both ends where it is estimated to be below zero."""
    left, right = (float(statistic(values)) for values in sides.values)
    value = left / right if right else math.inf
    of_left, of_right = cache(lower(sides)), cache(lower(sides.exchanged))
    smallest_left, smallest_right = of_left(0.0), of_right(0.0)
    low, high = -math.inf, math.inf
    if smallest_left > 0 and right > 0:
        low = _zero(of_left, value)
    elif smallest_right > 0:
        low = smallest_left / smallest_right
    if smallest_right > 0:
        # The largest left / right is one over the smallest right / left.
        inverse = _zero(of_right, right / left if left > 0 else math.inf)
        high = 1 / inverse if math.isfinite(inverse) else 0.0
    return Estimate(value=value, low=min(value, low), high=max(value, high))


def mean_lower_end(sides: Sides) -> LowerEnd:
    """Of the mean of the left set minus r times that of the right one; needs no draws of noise."""
    means = sides.joint.linear(np.kron(np.eye(2), np.full((1, sides.size), 1 / sides.size)))

    def end(ratio: float) -> float:
        combined = means.linear(np.array([[1.0, -ratio]]))
        return float(combined.values[0] - combined.margins(TAIL)[0][0])

    return end


def _zero(end: LowerEnd, estimate: float) -> float:
    """Where an end that is positive at 0 falls to zero: at the estimate if there is no noise, before it otherwise."""
    if not 0 < estimate < math.inf:
        estimate = 1 / LARGEST_RATIO
        while end(estimate) > 0:
            estimate *= 4
            if estimate > LARGEST_RATIO:
                return math.inf
    return estimate if end(estimate) >= 0 else float(brentq(end, 0.0, estimate, rtol=1e-3))
