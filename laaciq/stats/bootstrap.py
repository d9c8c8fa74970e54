"""The percentile interval of a bootstrap."""

from __future__ import annotations

import numpy as np

from laaciq.stats.estimate import LEVEL


def percentile_interval(draws: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
