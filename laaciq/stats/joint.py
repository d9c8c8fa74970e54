"""Estimates of several quantities from the same documents, with the noise that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtr, stdtrit


@dataclass(frozen=True)
class Part:
    """One independent source of noise, such as the documents of a language.

    `influence` is ψ, (observations, columns): what each observation contributes to the error of each quantity in `columns`. Σ ψψ′ is the
    covariance; each quantity's variance is known with so many degrees of `freedom`.
    """

    columns: np.ndarray
    influence: np.ndarray
    freedom: np.ndarray

    @cached_property
    def variances(self) -> np.ndarray:
        return (self.influence**2).sum(0)

    @property
    def third_cumulant(self) -> np.ndarray:
        """Of the error of each quantity; unbiased for a mean of equally distributed observations, 0 for two of them."""
        count = len(self.influence)
        if count <= 2:
            return np.zeros(self.influence.shape[1])
        return np.sqrt(count * (count - 1)) / (count - 2) * (self.influence**3).sum(0)

    def linear(self, contrasts: np.ndarray) -> Part:
        weights = contrasts[:, self.columns]
        # The tiny number gives a row of zeros some degrees of freedom.
        sizes = np.abs(weights) + np.finfo(float).tiny
        freedom = sizes @ self.freedom / sizes.sum(1)
        return Part(np.arange(len(contrasts)), self.influence @ weights.T, freedom)


@dataclass(frozen=True)
class JointEstimates:
    """`values`, the `covariance` of their noise, and the `parts` that the noise is the sum of.

    Parallel text is one part that all languages share; otherwise every language is a separate part. Draws of calibration text are
    one more part.
    """

    values: np.ndarray
    covariance: np.ndarray
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, values: np.ndarray, parts: Sequence[Part]) -> JointEstimates:
        covariance = np.zeros((len(values), len(values)))
        for part in parts:
            covariance[np.ix_(part.columns, part.columns)] += part.influence.T @ part.influence
        return cls(values, covariance, tuple(parts))

    @cached_property
    def variances(self) -> np.ndarray:
        # Not the diagonal of the covariance: where noise cancels, rounding may leave less than zero there.
        total = np.zeros(len(self.values))
        for part in self.parts:
            total[part.columns] += part.variances
        return total

    @property
    def standard_errors(self) -> np.ndarray:
        return np.sqrt(self.variances)

    @cached_property
    def freedom(self) -> np.ndarray:
        """Degrees of freedom of each variance: (Σ vₚ)² / Σ vₚ²/fₚ over the parts (Satterthwaite 1946)."""
        spread = np.zeros(len(self.values))
        for part in self.parts:
            spread[part.columns] += part.variances**2 / part.freedom
        # Where nothing varies, any number does.
        return np.divide(self.variances**2, spread, out=np.ones(len(spread)), where=spread > 0)

    @cached_property
    def skewness(self) -> np.ndarray:
        """Of the noise of each value. Few documents show little of it, so all quantities together give the skewness of one document."""
        third = np.zeros(len(self.values))
        for part in self.parts:
            third[part.columns] += part.third_cumulant
        varying = self.variances > 0
        if not varying.any():
            return third
        root = np.sqrt(self.freedom + 1)
        of_documents = root[varying] * third[varying] / self.variances[varying] ** 1.5
        return of_documents.mean() / root

    def margins(self, tail: float) -> tuple[np.ndarray, np.ndarray]:
        """How far the true values may lie below and above the estimated ones, each with probability `tail`.

        Student's t times the standard error. On the side of the long tail, which few documents show too little of, γ(t²/3 + 1/6) standard
        errors are added, γ being the skewness of the noise (Johnson 1978); the other side is not shortened.
        """
        quantile = stdtrit(self.freedom, 1 - tail)
        shift = self.skewness * (quantile**2 / 3 + 1 / 6)
        downward, upward = quantile + np.maximum(0, -shift), quantile + np.maximum(0, shift)
        return downward * self.standard_errors, upward * self.standard_errors

    def p_values(self) -> np.ndarray:
        """Two-sided p that a true value is zero: twice the tail at which the interval that `margins` gives ends at zero.

        |θ̂|/s = t + g(t²/3 + 1/6) is solved for t, where g is the skewness if its long tail points to zero, and 0 otherwise.
        """
        errors = self.standard_errors
        distance = np.divide(np.abs(self.values), errors, out=np.full(len(errors), np.inf), where=errors > 0)
        distance[self.values == 0] = 0.0
        lengthened = np.maximum(0.0, np.where(self.values > 0, -self.skewness, self.skewness))
        room = np.maximum(0.0, distance - lengthened / 6)
        # The root of the quadratic, in the form that does not cancel for little skewness.
        quantile = 2 * room / (1 + np.sqrt(1 + 4 / 3 * lengthened * np.where(np.isfinite(room), room, 0.0)))
        return 2 * stdtr(self.freedom, -quantile)

    def linear(self, contrasts: np.ndarray) -> JointEstimates:
        """Linear combinations, one per row of `contrasts`."""
        parts = tuple(part.linear(contrasts) for part in self.parts)
        return JointEstimates(contrasts @ self.values, contrasts @ self.covariance @ contrasts.T, parts)

    def scaled(self, slopes: np.ndarray, values: np.ndarray | None = None) -> JointEstimates:
        """Each quantity times its slope; with `values`, a function of each quantity with that slope at the estimate (delta method)."""
        parts = tuple(Part(p.columns, p.influence * slopes[p.columns], p.freedom) for p in self.parts)
        values = self.values * slopes if values is None else values
        return JointEstimates(values, self.covariance * np.outer(slopes, slopes), parts)

    def reordered(self, order: np.ndarray) -> JointEstimates:
        """The quantities in another order."""
        place = np.argsort(order)
        parts = tuple(Part(place[part.columns], part.influence, part.freedom) for part in self.parts)
        return JointEstimates(self.values[order], self.covariance[np.ix_(order, order)], parts)

    def about_mean(self) -> JointEstimates:
        """Deviations from the mean of all, whose noise is rescaled by √(m/(m−1)): what differences between quantities are made of."""
        count = len(self.values)
        centring = np.eye(count) - 1 / count
        centred = self.linear(centring)
        return centred.scaled(np.full(count, np.sqrt(count / (count - 1))), centred.values)

    def noise(self, draws: int, seed: int) -> np.ndarray:
        """Gaussian noise of this covariance, (draws, quantities)."""
        random, total = np.random.default_rng(seed), np.zeros((draws, len(self.values)))
        for part in self.parts:
            # R′R = Σ ψψ′. From ψ itself, so that the noise of two equal columns is equal to the last bit.
            root = np.linalg.qr(part.influence, mode="r")
            total[:, part.columns] += random.standard_normal((draws, len(root))) @ root
        return total
