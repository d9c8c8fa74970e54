"""Estimates of several quantities from the same documents, with the noise that they share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtrit


@dataclass(frozen=True)
class JointEstimates:
    """`values`, and their noise as a sum of independent `parts`: a covariance matrix, and the degrees of freedom that it is known with.

    Parallel text is one part that all languages share; otherwise every language is a separate part. Draws of calibration text are
    one more part.
    """

    values: np.ndarray
    parts: tuple[tuple[np.ndarray, float], ...]

    @cached_property
    def covariance(self) -> np.ndarray:
        return np.sum([covariance for covariance, _ in self.parts], axis=0)

    @property
    def variances(self) -> np.ndarray:
        # Of a difference without noise, rounding may leave less than zero.
        return np.maximum(self.covariance.diagonal(), 0.0)

    @property
    def standard_errors(self) -> np.ndarray:
        return np.sqrt(self.variances)

    @property
    def least_freedom(self) -> float:
        """Of any part: no sum of parts has fewer degrees of freedom."""
        return min(freedom for _, freedom in self.parts)

    @cached_property
    def freedom(self) -> np.ndarray:
        """Degrees of freedom of each variance: (Σ vₚ)² / Σ vₚ²/fₚ over the parts (Satterthwaite 1946)."""
        spread = np.sum([covariance.diagonal() ** 2 / freedom for covariance, freedom in self.parts], axis=0)
        # Where nothing varies, any number does; where rounding is all that varies, the formula says less than any part.
        return np.maximum(self.variances**2 / np.where(spread > 0, spread, 1), self.least_freedom)

    def margins(self, tail: float) -> np.ndarray:
        """What a value is exceeded by with probability `tail`, one side: a quantile of Student's t times the standard error."""
        return stdtrit(self.freedom, 1 - tail) * self.standard_errors

    def linear(self, contrasts: np.ndarray) -> JointEstimates:
        """Linear combinations, one per row of `contrasts`."""
        parts = tuple((contrasts @ covariance @ contrasts.T, freedom) for covariance, freedom in self.parts)
        return JointEstimates(contrasts @ self.values, parts)

    def scaled(self, slopes: np.ndarray, values: np.ndarray | None = None) -> JointEstimates:
        """Each quantity times its slope; with `values`, a function of each quantity with that slope at the estimate (delta method)."""
        outer = np.outer(slopes, slopes)
        parts = tuple((covariance * outer, freedom) for covariance, freedom in self.parts)
        return JointEstimates(self.values * slopes if values is None else values, parts)

    def about_mean(self) -> JointEstimates:
        """Deviations from the mean of all, whose noise is rescaled by √(m/(m−1)): what differences between quantities are made of."""
        count = len(self.values)
        centring = np.eye(count) - 1 / count
        centred = self.linear(centring)
        return centred.scaled(np.full(count, np.sqrt(count / (count - 1))), centred.values)

    def noise(self, draws: int, seed: int) -> np.ndarray:
        """Gaussian noise of this covariance, (draws, quantities)."""
        sizes, axes = np.linalg.eigh(self.covariance)
        root = axes * np.sqrt(np.maximum(sizes, 0))
        return np.random.default_rng(seed).standard_normal((draws, len(sizes))) @ root.T
