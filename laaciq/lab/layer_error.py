"""g(κ, B): the error of a clipped layer of unit variance, as the theory's model of losses uses it."""

from __future__ import annotations

from functools import lru_cache

from laaciq.clipping.distributions import GeneralisedGaussian
from laaciq.clipping.optimum import optimal_threshold

# Kurtosis that the family reaches, with room for a difference.
_LOWEST, _HIGHEST = -1.0, 1500.0
_STEP = 0.01


@lru_cache(maxsize=4096)
def layer_error(kurtosis: float, bits: int) -> float:
    """MSE / σ² of the noise model at its optimal threshold, for the generalised Gaussian of this κ."""
    return optimal_threshold(GeneralisedGaussian.of_kurtosis(min(max(kurtosis, _LOWEST), _HIGHEST)), bits).mse


def layer_error_slope(kurtosis: float, bits: int) -> float:
    """g′(κ), by a central difference over 1 % of 1 + κ."""
    step = _STEP * (1 + abs(kurtosis))
    return (layer_error(kurtosis + step, bits) - layer_error(kurtosis - step, bits)) / (2 * step)
