"""The threshold from kurtosis and bits alone: α*/σ ≈ f(κ, B) = c_B + d_B·ln(1+κ), with published and with our coefficients.

κ alone does not determine α*: two distributions with the same κ have different tails and different optima. `error_table` shows the cost. If
the weights are available, `optimum.true_optimal_threshold` needs no formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from laaciq.clipping.distributions import Distribution, GeneralisedGaussian, StudentT
from laaciq.clipping.noise_model import model_mse
from laaciq.clipping.optimum import optimal_threshold
from laaciq.errors import BadOption

# From Gaussian tails to κ = 22 and 24.
SHAPES = (2.0, 1.75, 1.5, 1.25, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
FREEDOMS = (100.0, 30.0, 15.0, 10.0, 8.0, 7.0, 6.0, 5.0, 4.5, 4.25)
FAMILY: tuple[Distribution, ...] = (*map(GeneralisedGaussian, SHAPES), *map(StudentT, FREEDOMS))


class Coefficients(NamedTuple):
    """c_B and d_B."""

    intercept: float
    slope: float


@dataclass(frozen=True)
class Formula:
    """Coefficients by bits. A κ below `least_kurtosis` is clamped to it, because ln(1+κ) is undefined from κ = −1 down (uniform: −1.2)."""

    name: str
    coefficients: Mapping[int, Coefficients]
    least_kurtosis: float

    def __contains__(self, bits: int) -> bool:
        return bits in self.coefficients

    def at(self, bits: int) -> Coefficients:
        if bits not in self:
            offered = ", ".join(map(str, self.coefficients))
            raise BadOption(f"the {self.name} formula has no coefficients for {bits} bits: give one of {offered}")
        return self.coefficients[bits]


# At −0.9 the published formula gives 1.81σ, between what is best there (1.97σ) and what is best for uniform weights (1.64σ).
PUBLISHED = Formula("published", {4: Coefficients(2.5, 0.3)}, least_kurtosis=-0.9)
# Least squares of α* on ln(1+κ) over `FAMILY`, α* being the noise model's optimum; tests/clipping/test_formula.py fits them again.
# Tails lighter than Gaussian are taken as Gaussian: clipping too little costs a little, clipping too much costs a lot.
FITTED = Formula(
    "fitted",
    {
        2: Coefficients(1.5276, 0.0923),
        3: Coefficients(2.0725, 0.3333),
        4: Coefficients(2.4990, 0.6894),
        5: Coefficients(2.8398, 1.1728),
        6: Coefficients(3.1021, 1.8085),
        7: Coefficients(3.2794, 2.6330),
        8: Coefficients(3.3536, 3.6977),
    },
    least_kurtosis=0.0,
)


def clip_ratio(kurtosis: ArrayLike, bits: int, formula: Formula = FITTED) -> np.ndarray:
    """f(κ, B) = c_B + d_B·ln(1+κ) ≈ α*/σ for every κ.

    FITTED is for 0 ≤ κ ≤ 24, clamped below and an extrapolation above; PUBLISHED is within 1.5 % of the least error for κ from −0.8 to 0.5.
    """
    coefficients = formula.at(bits)
    return coefficients.intercept + coefficients.slope * np.log1p(_clamped(kurtosis, formula))


@dataclass(frozen=True)
class FormulaError:
    """One distribution: its optimum under the noise model, the formula's α, and the cost of using the latter."""

    bits: int
    distribution: str
    kurtosis: float
    optimum: float
    formula: float
    relative_error: float
    excess_mse: float


def error_table(formula: Formula = FITTED, bits: Iterable[int] | None = None) -> list[FormulaError]:
    """`relative_error` is α/α* − 1, `excess_mse` is MSE(α)/MSE(α*) − 1; for every member of `FAMILY`, at `bits` or at all widths of
    `formula`.
    """
    rows = []
    for width in formula.coefficients if bits is None else bits:
        for member in FAMILY:
            best, alpha = optimal_threshold(member, width), float(clip_ratio(member.kurtosis, width, formula))
            excess = float(model_mse(member, alpha, width)) / best.mse - 1
            rows.append(
                FormulaError(width, str(member), member.kurtosis, best.alpha, alpha, alpha / best.alpha - 1, excess)
            )
    return rows


def _clamped(kurtosis: ArrayLike, formula: Formula) -> np.ndarray:
    kurtosis = np.asarray(kurtosis, dtype=np.float64)
    if np.isnan(kurtosis).any():
        raise BadOption("a kurtosis is NaN: constant weights have none")
    return np.maximum(kurtosis, formula.least_kurtosis)
