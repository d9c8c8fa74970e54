"""Do several noisy estimates differ by more than their noise, and by how much?"""

from __future__ import annotations

import numpy as np


def between_deviation(values: np.ndarray, covariance: np.ndarray) -> float:
    """τ, the standard deviation of the true values: τ² = S² − (tr Σ − 1′Σ1/m)/(m−1), and 0 where noise explains all of the variance S².

    The estimator of Hedges (1983) for m ≥ 2 estimates whose noise has the covariance Σ: noise that all share makes no difference between them.
    Unbiased for τ² but for the cut at zero.
    """
    count = len(values)
    noise = (np.trace(covariance) - covariance.sum() / count) / (count - 1)
    return float(np.sqrt(max(0.0, values.var(ddof=1) - noise)))


def exceedance_p(observed: float, under_null: np.ndarray) -> float:
    """Share of draws under the null at least as large as what was observed, never zero (Davison & Hinkley 1997)."""
    return float((1 + (under_null >= observed).sum()) / (1 + len(under_null)))
