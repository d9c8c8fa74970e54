"""Is a difference smaller than a margin? Two one-sided tests (TOST)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from laaciq.stats.columns import column
from laaciq.stats.estimate import LEVEL

# Of the interval that lies within the margin exactly if p < 1 − LEVEL.
_INTERVAL = 2 * LEVEL - 1


@dataclass(frozen=True)
class Equivalence:
    """`p` is the larger of the two one-sided p. `low` and `high` bound the 90 % interval: it lies within ±margin exactly if p < 0.05."""

    difference: float
    margin: float
    p_above_lower: float
    p_below_upper: float
    low: float
    high: float

    @property
    def p(self) -> float:
        return max(self.p_above_lower, self.p_below_upper)


def paired_equivalence(differences: ArrayLike, margin: float) -> Equivalence:
    """Tests that the mean difference lies within ±margin, by Student's t against each end (Schuirmann 1987).

    Valid for independent differences that are near normal, or many. The margin is fixed before data are seen.
    """
    values, margin = column(differences, least=2, name="the column of differences"), _margin(margin)
    if np.ptp(values) == 0:
        raise ValueError("the differences are constant: no test of their mean exists")
    interval = stats.ttest_1samp(values, 0.0).confidence_interval(_INTERVAL)
    return Equivalence(
        difference=float(values.mean()),
        margin=margin,
        p_above_lower=float(stats.ttest_1samp(values, -margin, alternative="greater").pvalue),
        p_below_upper=float(stats.ttest_1samp(values, margin, alternative="less").pvalue),
        low=float(interval.low),
        high=float(interval.high),
    )


def two_sample_equivalence(left: ArrayLike, right: ArrayLike, margin: float) -> Equivalence:
    """Tests that mean left − mean right lies within ±margin; variances may differ (Welch 1947)."""
    left, right = column(left, least=2, name="the left group"), column(right, least=2, name="the right group")
    margin = _margin(margin)
    if np.ptp(left) == 0 and np.ptp(right) == 0:
        raise ValueError("both groups are constant: no test of their difference exists")
    interval = stats.ttest_ind(left, right, equal_var=False).confidence_interval(_INTERVAL)
    above = stats.ttest_ind(left + margin, right, equal_var=False, alternative="greater")
    below = stats.ttest_ind(left - margin, right, equal_var=False, alternative="less")
    return Equivalence(
        difference=float(left.mean() - right.mean()),
        margin=margin,
        p_above_lower=float(above.pvalue),
        p_below_upper=float(below.pvalue),
        low=float(interval.low),
        high=float(interval.high),
    )


def _margin(margin: float) -> float:
    if not 0 < margin < np.inf:
        raise ValueError(f"the margin is {margin}: give a number above zero")
    return float(margin)
