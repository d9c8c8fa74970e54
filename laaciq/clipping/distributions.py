"""Zero-mean, unit-variance distributions to compare weights with, and their clipping error in closed form.

All take thresholds in units of σ; for another σ, thresholds scale with σ and errors with σ².
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from laaciq.errors import BadOption

# Beyond these shapes Γ(5/β) leaves float64's comfort, or nothing changes any more: κ is 1,956 at 0.2 and −1.199 at 100.
SHAPES = (0.2, 100.0)


class Distribution(ABC):
    """Symmetric about zero, of variance 1."""

    family: ClassVar[str]

    @property
    @abstractmethod
    def kurtosis(self) -> float:
        """Excess κ = E[X⁴] − 3."""

    @abstractmethod
    def tail_moment(self, order: int, alpha: ArrayLike) -> np.ndarray:
        """E[|X|^k · 1{|X| > α}] for k = 0, 1, 2 and every α ≥ 0."""

    @classmethod
    @abstractmethod
    def of_kurtosis(cls, kurtosis: float) -> Self:
        """The member of the family whose excess kurtosis is `kurtosis`."""

    def clipping_error(self, alpha: ArrayLike) -> np.ndarray:
        """E[(|X| − α)₊²], both tails together, for every threshold α ≥ 0 (Banner, Nahshan & Soudry 2019)."""
        alpha = np.asarray(alpha, dtype=np.float64)
        error = (
            self.tail_moment(2, alpha) - 2 * alpha * self.tail_moment(1, alpha) + alpha**2 * self.tail_moment(0, alpha)
        )
        # Far out, where all three are tiny, rounding may leave less than nothing.
        return np.maximum(error, 0.0)


@dataclass(frozen=True)
class GeneralisedGaussian(Distribution):
    """Density ∝ exp(−|x/s|^β), s² = Γ(1/β)/Γ(3/β) (Nadarajah 2005): β = 2 is Gaussian, 1 Laplacian, ∞ uniform; small β, heavy tails."""

    shape: float
    family: ClassVar[str] = "gen. Gaussian"

    def __post_init__(self) -> None:
        if not SHAPES[0] <= self.shape <= SHAPES[1]:
            raise BadOption(f"shape β = {self.shape} is out of range: give one from {SHAPES[0]} to {SHAPES[1]:g}")

    @classmethod
    def of_kurtosis(cls, kurtosis: float) -> Self:
        highest, lowest = (cls(shape).kurtosis for shape in SHAPES)
        if not lowest <= kurtosis <= highest:
            raise BadOption(
                f"no generalised Gaussian here has κ = {kurtosis}: give one from {lowest:.3f} to {highest:.0f}"
            )
        return cls(optimize.brentq(lambda shape: cls(shape).kurtosis - kurtosis, *SHAPES, xtol=1e-13))

    @property
    def kurtosis(self) -> float:
        """κ = Γ(5/β)·Γ(1/β)/Γ(3/β)² − 3."""
        first, third, fifth = (special.gammaln(k / self.shape) for k in (1, 3, 5))
        return float(np.exp(first + fifth - 2 * third)) - 3

    def tail_moment(self, order: int, alpha: ArrayLike) -> np.ndarray:
        """s^k · Γ((k+1)/β, (α/s)^β) / Γ(1/β)."""
        first, third, next_order = (special.gammaln(k / self.shape) for k in (1, 3, order + 1))
        scale = np.exp((first - third) / 2)
        # Where the power overflows, the tail is empty: the incomplete gamma function of ∞ is 0.
        with np.errstate(over="ignore"):
            power = (np.asarray(alpha, dtype=np.float64) / scale) ** self.shape
        return scale**order * np.exp(next_order - first) * special.gammaincc((order + 1) / self.shape, power)

    def __str__(self) -> str:
        return {1.0: "Laplacian", 2.0: "Gaussian"}.get(self.shape, f"{self.family} β = {self.shape:.4g}")


@dataclass(frozen=True)
class StudentT(Distribution):
    """Student's t with ν degrees of freedom, scaled to variance 1; ν > 4, or there is no κ. Tails are powers, whatever ν."""

    df: float
    family: ClassVar[str] = "Student-t"

    def __post_init__(self) -> None:
        if not 4 < self.df < np.inf:
            raise BadOption(f"Student-t with {self.df} degrees of freedom has no finite kurtosis: give more than 4")

    @classmethod
    def of_kurtosis(cls, kurtosis: float) -> Self:
        if not 0 < kurtosis < np.inf:
            raise BadOption(f"no Student-t has κ = {kurtosis}: give a positive one")
        return cls(4 + 6 / kurtosis)

    @property
    def kurtosis(self) -> float:
        """κ = 6/(ν − 4)."""
        return 6 / (self.df - 4)

    def tail_moment(self, order: int, alpha: ArrayLike) -> np.ndarray:
        """(ν−2)^(k/2) · B((ν−k)/2, (k+1)/2)/B(ν/2, 1/2) · I_y((ν−k)/2, (k+1)/2), y = (ν−2)/(ν−2+α²).

        From T²/(ν+T²) ~ Beta(1/2, ν/2); I is the regularised incomplete beta function, B the complete one.
        """
        first, second = (self.df - order) / 2, (order + 1) / 2
        factor = np.exp(special.betaln(first, second) - special.betaln(self.df / 2, 0.5))
        spread = self.df - 2
        tail = special.betainc(first, second, spread / (spread + np.asarray(alpha, dtype=np.float64) ** 2))
        return spread ** (order / 2) * factor * tail

    def __str__(self) -> str:
        return f"{self.family} ν = {self.df:.4g}"


GAUSSIAN, LAPLACIAN = GeneralisedGaussian(2.0), GeneralisedGaussian(1.0)
