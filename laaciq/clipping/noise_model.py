"""The noise model of ACIQ: clipping error plus uniform rounding noise Δ²/12. It is not the true error of Q_α (`quantizer.true_mse`).

It assumes rounding errors uniform over a step, even beyond α, where there are none. Good if the density hardly changes over a step and
little is clipped, from about 4 bits on. Below that, its optimum departs from that of the true error.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from laaciq.clipping.distributions import Distribution
from laaciq.clipping.quantizer import positive, symmetric_levels
from laaciq.errors import BadOption

Step = Literal["published", "real"]


def quantization_step(alpha: ArrayLike, bits: int, *, step: Step = "published") -> np.ndarray:
    """Δ: `published` is the theory's 2α/(2^B − 1), 2^B levels from −α to α; `real` that of Q_α, α/q with q = 2^(B−1) − 1, one level fewer."""
    if step not in get_args(Step):
        raise BadOption(f"unknown step {step!r}: give 'published' or 'real'")
    levels = symmetric_levels(bits)
    return positive(alpha) / (levels + 0.5 if step == "published" else levels)


def noise(alpha: ArrayLike, bits: int, *, step: Step = "published") -> np.ndarray:
    """Δ²/12, the variance of an error that is uniform over one step."""
    return quantization_step(alpha, bits, step=step) ** 2 / 12


def model_mse(distribution: Distribution, alpha: ArrayLike, bits: int, *, step: Step = "published") -> np.ndarray:
    """E[(|X|−α)₊²] + Δ²/12 (Banner, Nahshan & Soudry 2019), for every α > 0: convex in α, and so of one minimum."""
    return distribution.clipping_error(positive(alpha)) + noise(alpha, bits, step=step)


def model_gradient(distribution: Distribution, alpha: ArrayLike, bits: int, *, step: Step = "published") -> np.ndarray:
    """dMSE/dα = −2·E[(|X|−α)₊] + 2·(Δ²/12)/α."""
    alpha = positive(alpha)
    excess = distribution.tail_moment(1, alpha) - alpha * distribution.tail_moment(0, alpha)
    return 2 * noise(alpha, bits, step=step) / alpha - 2 * excess


def model_curvature(distribution: Distribution, alpha: ArrayLike, bits: int, *, step: Step = "published") -> np.ndarray:
    """d²MSE/dα² = 2·P(|X| > α) + 2·(Δ²/12)/α², never negative."""
    alpha = positive(alpha)
    return 2 * noise(alpha, bits, step=step) / alpha**2 + 2 * distribution.tail_moment(0, alpha)
