"""p-values of several tests, adjusted for their number: an adjusted p below the level is a rejection."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


def bonferroni(p_values: ArrayLike) -> np.ndarray:
    """min(1, m·p): bounds the probability of any false rejection, whatever the dependence of the m tests (Dunn 1961)."""
    p = _checked(p_values)
    return np.minimum(1.0, len(p) * p)


def holm(p_values: ArrayLike) -> np.ndarray:
    """max over j ≤ i of min(1, (m − j + 1)·p₍ⱼ₎): as Bonferroni, and rejects whatever that rejects and more (Holm 1979)."""
    p = _checked(p_values)
    order = np.argsort(p)
    steps = np.maximum.accumulate(np.arange(len(p), 0, -1) * p[order])
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted


def benjamini_hochberg(p_values: ArrayLike) -> np.ndarray:
    """min over j ≥ i of min(1, m/j·p₍ⱼ₎): bounds the expected share of false rejections among all rejections (Benjamini & Hochberg 1995).

    Valid for independent tests and for positively dependent ones, such as losses of languages on parallel text (Benjamini & Yekutieli 2001).
    """
    return np.asarray(stats.false_discovery_control(_checked(p_values), method="bh"))


def _checked(p_values: ArrayLike) -> np.ndarray:
    p = np.asarray(p_values, dtype=float)
    if p.ndim != 1 or not len(p):
        raise ValueError("there are no p-values to adjust: give at least one")
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a p-value lies between 0 and 1")
    return p
