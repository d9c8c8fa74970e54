"""Do several noisy estimates differ by more than their noise, and by how much?"""

from __future__ import annotations

import numpy as np


def cochran_q(estimates: np.ndarray, variances: np.ndarray) -> float:
    """Q = Σ wᵢ(xᵢ − x̄_w)², wᵢ = 1/varianceᵢ (Cochran 1954)."""
    weights = 1 / variances
    centre = (weights * estimates).sum() / weights.sum()
    return float((weights * (estimates - centre) ** 2).sum())


def between_deviation(estimates: np.ndarray, variances: np.ndarray) -> float:
    """τ, the standard deviation of the true values (DerSimonian & Laird 1986); 0 when noise explains all the spread."""
    if len(estimates) < 2 or np.ptp(estimates) == 0:
        return 0.0
    weights = 1 / variances
    excess = cochran_q(estimates, variances) - (len(estimates) - 1)
    scale = weights.sum() - (weights**2).sum() / weights.sum()
    return float(np.sqrt(max(0.0, excess / scale)))


def exceedance_p(observed: float, under_null: np.ndarray) -> float:
    """Share of draws under the null at least as large as what was observed, never zero (Davison & Hinkley 1997)."""
    return float((1 + (under_null >= observed).sum()) / (1 + len(under_null)))
