"""The optimal clipping threshold α*: of a distribution under the noise model, and of any data under the true error of Q_α."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from laaciq.clipping.distributions import Distribution
from laaciq.clipping.noise_model import Step, model_gradient, model_mse, noise
from laaciq.clipping.quantizer import quantize, symmetric_levels, true_mse
from laaciq.errors import BadOption
from laaciq.profiling.histogram import PatternHistogram

# Thresholds that are tried before the best is refined: the fewer the values, the more rugged their error, and the cheaper a fine scan.
SCANNED = (128, 4096)
_SCAN_COST = 2**20


@dataclass(frozen=True)
class Optimum:
    """A threshold α and the mean squared error there."""

    alpha: float
    mse: float


def optimal_threshold(distribution: Distribution, bits: int, *, step: Step = "published") -> Optimum:
    """α* of the noise model, in units of σ: the root of its gradient, exact to rounding.

    The model is convex, so that there is one root. It lies below 1/(2√c), c = Δ²/(12α²), since (x−α)₊ ≤ x²/(4α) bounds what is clipped.

    >>> from laaciq.clipping.distributions import GAUSSIAN
    >>> f"{optimal_threshold(GAUSSIAN, 4).alpha:.3f}"
    '2.523'
    """
    highest = 1 / (2 * np.sqrt(float(noise(1.0, bits, step=step))))
    alpha = optimize.brentq(
        lambda a: float(model_gradient(distribution, a, bits, step=step)), 1e-9, highest, xtol=1e-13
    )
    return Optimum(float(alpha), float(model_mse(distribution, alpha, bits, step=step)))


def true_optimal_threshold(
    source: Distribution | PatternHistogram | ArrayLike, bits: int, *, weights: ArrayLike | None = None
) -> Optimum:
    """α* of the true error E[(X − Q_α(X))²]: of a distribution, a histogram, or an array whose values count as `weights` say.

    The error has many local minima, so that α is scanned, and refined between the neighbours of the best point; the better of the two is
    kept, and no scanned point is better. At a minimum α = q·Σ|x|c/Σc² ≥ E|X|, c being the codes: the scan begins there. It ends where the
    magnitudes reach no more than half of the levels (a distribution: at steps of 10σ).
    """
    levels = symmetric_levels(bits)
    if isinstance(source, Distribution):
        if weights is not None:
            raise BadOption("a distribution takes no weights: leave `weights` out")
        lowest, highest = float(source.tail_moment(1, 0.0)), 10.0 * levels
        # Smooth, so the coarsest scan suffices.
        alphas = np.geomspace(lowest, highest, SCANNED[0])
        return _least(lambda alpha: float(true_mse(source, alpha, bits)), alphas)
    magnitudes, shares = _sample(source, weights)
    # In units of the largest, so that no square of a small weight underflows.
    largest = float(magnitudes.max())
    units = magnitudes / largest

    def error(alpha: float) -> float:
        return float(shares @ (units - quantize(units, alpha, bits)) ** 2)

    best = _least(error, scan_points(min(float(shares @ units), 1.0), float(min(levels, 2)), len(units)))
    return Optimum(best.alpha * largest, best.mse * largest**2)


def scan_points(lowest: float, highest: float, values: int) -> np.ndarray:
    """The thresholds to try for this many values, at equal ratios."""
    return np.geomspace(lowest, highest, int(np.clip(_SCAN_COST // values, *SCANNED)))


def _least(error: Callable[[float], float], alphas: np.ndarray) -> Optimum:
    errors = [error(alpha) for alpha in alphas]
    best = int(np.argmin(errors))
    around = alphas[max(best - 1, 0)], alphas[min(best + 1, len(alphas) - 1)]
    refined = optimize.minimize_scalar(error, bounds=around, method="bounded", options={"xatol": 1e-9 * around[1]})
    both = Optimum(float(alphas[best]), errors[best]), Optimum(float(refined.x), float(refined.fun))
    return min(both, key=lambda optimum: optimum.mse)


def _sample(source: PatternHistogram | ArrayLike, weights: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes and the share of each; signs do not matter, because Q_α is odd."""
    values, counts = source, weights
    if isinstance(source, PatternHistogram):
        if weights is not None:
            raise BadOption("a histogram has counts as weights: leave `weights` out")
        present = np.flatnonzero(source.counts)
        values, counts = source.values[present], source.counts[present]
    magnitudes = np.abs(np.asarray(values, dtype=np.float64)).ravel()
    shares = np.ones_like(magnitudes) if counts is None else np.asarray(counts, dtype=np.float64).ravel()
    if shares.shape != magnitudes.shape:
        raise BadOption(f"{len(shares)} weights for {len(magnitudes)} values: give one per value")
    if not (np.isfinite(magnitudes).all() and np.isfinite(shares).all() and (shares >= 0).all()):
        raise BadOption("values must be finite, and their weights finite and not negative")
    # A zero costs nothing at any threshold: it only counts.
    kept = (shares > 0) & (magnitudes > 0)
    if not kept.any():
        raise BadOption("all values or all weights are zero: there is nothing to clip")
    return magnitudes[kept], shares[kept] / shares.sum()
