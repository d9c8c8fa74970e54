"""The cost of a threshold that fits another kurtosis: exactly, and by the theory's quadratic law. Noise model, in units of σ².

MSE(α) − MSE(α*) ≈ ½·MSE''(α*)·(α−α*)², and with α = σ·g(κ) this is ½·MSE''·σ²·g'(κ_eff)²·(κ_eff − κ_global)². Two steps are approximate,
and the results show both: the parabola in α, and the straight line for g.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from laaciq.clipping.distributions import Distribution, GeneralisedGaussian, StudentT
from laaciq.clipping.noise_model import Step, model_curvature, model_mse
from laaciq.clipping.optimum import optimal_threshold

SHARED_KURTOSIS = 3.0
EFFECTIVE_KURTOSES = (0.5, 1.0, 2.0, 2.5, 3.5, 4.0, 6.0, 12.0, 24.0)
FAMILIES: tuple[type[Distribution], ...] = (GeneralisedGaussian, StudentT)
# Of the central difference for g'; α* is exact to some 1e-11.
_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class SharingCost:
    """`excess` is MSE(α_shared) − MSE(α*); `second_order` the parabola in α, `quadratic_law` that in κ."""

    family: str
    bits: int
    effective_kurtosis: float
    shared_kurtosis: float
    alpha: float
    shared_alpha: float
    least_mse: float
    excess: float
    second_order: float
    quadratic_law: float


def sharing_cost(
    effective_kurtosis: float,
    shared_kurtosis: float,
    bits: int,
    *,
    family: type[Distribution] = GeneralisedGaussian,
    step: Step = "published",
) -> SharingCost:
    """The cost for weights of κ_eff clipped at the optimum of κ_global, both members of `family`.

    g is the optimum of the family α*(κ), so no formula's error enters. The parabolas hold in the limit κ_eff → κ_global.
    """

    def optimum(kurtosis: float) -> float:
        return optimal_threshold(family.of_kurtosis(kurtosis), bits, step=step).alpha

    member, shared = family.of_kurtosis(effective_kurtosis), optimum(shared_kurtosis)
    best = optimal_threshold(member, bits, step=step)
    half_curvature = float(model_curvature(member, best.alpha, bits, step=step)) / 2
    rise = optimum(effective_kurtosis + _DIFFERENCE) - optimum(effective_kurtosis - _DIFFERENCE)
    distance = rise / (2 * _DIFFERENCE) * (effective_kurtosis - shared_kurtosis)
    return SharingCost(
        family=family.family,
        bits=bits,
        effective_kurtosis=effective_kurtosis,
        shared_kurtosis=shared_kurtosis,
        alpha=best.alpha,
        shared_alpha=shared,
        least_mse=best.mse,
        excess=float(model_mse(member, shared, bits, step=step)) - best.mse,
        second_order=half_curvature * (shared - best.alpha) ** 2,
        quadratic_law=half_curvature * distance**2,
    )


def sharing_table(bits: Iterable[int]) -> list[SharingCost]:
    """The cost of a threshold for κ = 3 (Laplacian), shared by weights from nearly Gaussian to κ = 24, in both families."""
    chosen = tuple(bits)
    return [
        sharing_cost(effective, SHARED_KURTOSIS, width, family=family)
        for family in FAMILIES
        for effective in EFFECTIVE_KURTOSES
        for width in chosen
    ]
