"""Lower ends of max a − r·max b, and of the range of a minus r times that of b, for two sets of quantities.

Each set has its own largest quantity. Since max a − r·max b = minⱼ maxᵢ (aᵢ − r·bⱼ), its lower end is the least, over every j that may be the
largest of the right set, of the lower end of maxᵢ (aᵢ − r·bⱼ): an intersection-union test over the test of `extremes`.
"""

from __future__ import annotations

import numpy as np

from laaciq.stats.comparisons import LowerEnd, Sides
from laaciq.stats.extremes import band_factor, lower_end, slack, small_sample_factor, working_scale

# Where the noise of two quantities cancels, this share of their variances is left, so that rounding is no noise.
ROUNDING = 1e-20


def maximum_lower_end(sides: Sides) -> LowerEnd:
    """The least is nearly always that of the right set's largest value, or of its largest value plus standard error."""
    right, errors = sides.values[1], sides.joint.standard_errors[sides.size :]
    ends = [_end_against(sides, chosen) for chosen in {int(right.argmax()), int((right + errors).argmax())}]
    return lambda ratio: min(end(ratio) for end in ends)


def _end_against(sides: Sides, chosen: int) -> LowerEnd:
    """Of maxᵢ (aᵢ − r·bⱼ) for one j."""
    size, covariance = sides.size, sides.joint.covariance
    (left, right), here, there = sides.values, sides.noise[:, : sides.size], sides.noise[:, [sides.size + chosen]]
    within, cross = covariance[:size, :size], covariance[:size, size + chosen]
    of_chosen = covariance[size + chosen, size + chosen]
    # Each quantity against itself.
    theirs, shared = covariance[size:, size:].diagonal(), covariance[:size, size:].diagonal()
    of_part, cross_of_part, chosen_of_part, freedom_of_part = _by_part(sides, chosen)

    def end(ratio: float) -> float:
        contrasts = within - ratio * (cross[:, None] + cross) + ratio**2 * of_chosen
        rounding = ROUNDING * (within.diagonal() + ratio**2 * of_chosen)
        variances = np.maximum(contrasts.diagonal(), rounding)
        parts = of_part - 2 * ratio * cross_of_part + ratio**2 * chosen_of_part
        spread = (parts**2 / freedom_of_part).sum(0)
        freedom = np.divide(parts.sum(0) ** 2, spread, out=np.ones(size), where=spread > 0)
        freedom = np.maximum(freedom, freedom_of_part.min())
        # A language against itself shares more of its noise than against another one.
        typical = np.full(size, np.median(variances))
        typical[chosen] = np.median(np.maximum(within.diagonal() - 2 * ratio * shared + ratio**2 * theirs, rounding))
        scale = working_scale(variances, freedom, typical)
        return lower_end(left - ratio * right[chosen], contrasts, freedom, here - ratio * there, scale)

    return end


def _by_part(sides: Sides, chosen: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """By part of the noise and quantity: variance on the left, covariance with the chosen one, variance of the chosen one, freedom."""
    size, parts = sides.size, sides.joint.parts
    variances, covariances, freedom = np.zeros((3, len(parts), size))
    of_chosen = np.zeros((len(parts), 1))
    for row, part in enumerate(parts):
        on_left = part.columns < size
        place, left = part.columns[on_left], part.influence[:, on_left]
        freedom[row] = part.freedom.min()
        freedom[row, place] = part.freedom[on_left]
        variances[row, place] = (left**2).sum(0)
        if (column := np.flatnonzero(part.columns == size + chosen)).size:
            influence = part.influence[:, column[0]]
            covariances[row, place] = influence @ left
            of_chosen[row] = influence @ influence
    return variances, covariances, of_chosen, freedom


def range_lower_end(sides: Sides) -> LowerEnd:
    """Against the two observed extremes of the right set: scales are nearly equal, so that no other two would be much lower."""
    size = sides.size
    # The mean of each set cancels in its range, and its noise with it.
    centred = sides.joint.linear(np.kron(np.eye(2), np.eye(size) - 1 / size))
    values, others = np.split(centred.values, 2)
    here, there = (noise - noise.mean(1, keepdims=True) for noise in np.split(sides.noise, 2, axis=1))
    typical = np.repeat([np.median(variances) for variances in np.split(centred.variances, 2)], size)
    scale, other_scale = np.split(working_scale(centred.variances, centred.freedom, typical), 2)
    errors = centred.standard_errors[:size]
    top, bottom = int(others.argmax()), int(others.argmin())
    upward = here + slack(values, here, scale, errors)
    downward = here - slack(-values, -here, scale, errors)
    # The right set's noise and scale are shared out between the two ends of the left one.
    beside = (there[:, [top]] - there[:, [bottom]]) / 2
    beside_scale = (other_scale[top] + other_scale[bottom]) / 2
    extremes = np.bincount([top, bottom], minlength=size) / 2

    def end(ratio: float) -> float:
        wider = scale + ratio * beside_scale
        factor, share = band_factor(upward - ratio * beside, downward + ratio * beside, wider)
        slopes = np.repeat([1.0, ratio], size)
        covariance = centred.covariance * np.outer(slopes, slopes)
        factor *= small_sample_factor(covariance, centred.freedom, np.concatenate([share, extremes]) / 2)
        lowest = (values - factor * wider).max() - (values + factor * wider).min()
        return float(lowest - ratio * np.ptp(others))

    return end
