"""The symmetric quantizer Q_α and its true error."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from laaciq.clipping.distributions import Distribution
from laaciq.errors import BadOption


def symmetric_levels(bits: int) -> int:
    """q = 2^(B−1) − 1, the levels on each side of zero."""
    if bits < 2:
        raise BadOption(f"a symmetric grid needs 2 bits or more, not {bits}")
    return 2 ** (bits - 1) - 1


def positive(alpha: ArrayLike) -> np.ndarray:
    """Clipping thresholds as an array, all positive and finite or a `BadOption`."""
    thresholds = np.asarray(alpha, dtype=np.float64)
    if not bool(np.all((thresholds > 0) & np.isfinite(thresholds))):
        raise BadOption(f"a clipping threshold α must be a positive number, not {alpha!r}")
    return thresholds


def quantize(x: ArrayLike, alpha: ArrayLike, bits: int) -> np.ndarray:
    """Q_α(x) = α·round(clip(x, −α, α)·q/α)/q, halves rounded to even; mid-tread: zero is a level, so that 2^B − 1 codes are used.

    `alpha` broadcasts against `x`. Idempotent.
    """
    levels, alpha = symmetric_levels(bits), positive(alpha)
    codes = np.rint(np.clip(np.asarray(x, dtype=np.float64), -alpha, alpha) * levels / alpha)
    # In this order the last level is α itself, without a rounding error.
    return alpha * (codes / levels)


def true_mse(distribution: Distribution, alpha: ArrayLike, bits: int) -> np.ndarray:
    """E[(X − Q_α(X))²] of a distribution, for every threshold α > 0: no noise model.

    1 + Σ_k [Δ²(2k−1)·P(|X| > b_k) − 2Δ·E[|X|; |X| > b_k]] over k = 1…q, with Δ = α/q and b_k = (k−½)Δ, where the level passes from
    (k−1)Δ to kΔ. Our derivation; exact for every symmetric distribution of variance 1.
    """
    levels = symmetric_levels(bits)
    step, odd = positive(alpha)[..., None] / levels, 2 * np.arange(levels) + 1
    changes = step**2 * odd * distribution.tail_moment(0, step * odd / 2) - 2 * step * distribution.tail_moment(
        1, step * odd / 2
    )
    return 1 + changes.sum(axis=-1)
