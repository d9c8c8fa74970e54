"""A ratio of sums over documents, such as loss per token: what each document contributes to its error."""

from __future__ import annotations

import numpy as np


def ratio_influence(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """What each document contributes to the error of θ̂ = Σx / Σt: Σ ψ² is the jackknife's variance of θ̂ (Tukey 1958).

    ψ_d = √((n−1)/n) (mean θ̂₋d − θ̂₋d), where θ̂₋d leaves document d out. Documents go along the first axis. Two ratios over the same
    documents have the covariance Σ ψψ′. Needs two documents, and a denominator that no single document makes up.
    """
    count = len(numerator)
    without = (numerator.sum(0) - numerator) / (denominator.sum(0) - denominator)
    return np.sqrt((count - 1) / count) * (without.mean(0) - without)


def ratio_freedom(denominator: np.ndarray) -> float:
    """Degrees of freedom of the jackknife's variance: n − 1 for n documents of one size, fewer if a few large documents decide.

    (n − 1) m/n, where m = (Σt)² / Σt² is the effective number of documents (Kish 1965).
    """
    count = len(denominator)
    return float((count - 1) * denominator.sum() ** 2 / (count * (denominator**2).sum()))
