"""docs/theorems.md, sections 1 and 2: what the theory says about clipping, where it holds, and the counterexamples where it does not."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from laaciq.clipping.distributions import GeneralisedGaussian, StudentT
from laaciq.clipping.noise_model import model_mse, noise
from laaciq.clipping.optimum import optimal_threshold, true_optimal_threshold
from laaciq.clipping.quantizer import quantize, symmetric_levels
from laaciq.clipping.sharing import sharing_cost


def kurtosis(values):
    return float(stats.kurtosis(values))


def test_the_error_is_not_the_sum_of_clipping_and_noise():
    """Weights on the grid: nothing is clipped, the true error is 0, the noise model's is not."""
    alpha, bits = 1.0, 4
    levels = symmetric_levels(bits)
    weights = np.arange(-levels, levels + 1) / levels
    assert np.abs(weights - quantize(weights, alpha, bits)).max() == pytest.approx(0, abs=1e-15)
    assert float(noise(alpha, bits)) > 1e-3


def test_thresholds_scale_with_the_weights():
    """α*(c·w) = c·α*(w), so a language whose activations are c times another's has the same codes."""
    weights = np.random.default_rng(0).standard_t(5, 4000)
    once, thrice = (true_optimal_threshold(values, 4) for values in (weights, 3 * weights))
    # The search compares thresholds to a relative step; both searches take the same ones.
    assert thrice.alpha == pytest.approx(3 * once.alpha, rel=1e-3)
    assert kurtosis(weights) == pytest.approx(kurtosis(3 * weights))


def test_kurtosis_does_not_decide_the_threshold():
    """Two distributions with σ = 1 and κ = 20, a generalised Gaussian and Student's t: their optima at 4 bits differ by a tenth or more."""
    both = [family.of_kurtosis(20.0) for family in (GeneralisedGaussian, StudentT)]
    assert both[0].kurtosis == pytest.approx(both[1].kurtosis)
    alphas = [optimal_threshold(distribution, 4).alpha for distribution in both]
    assert max(alphas) > 1.1 * min(alphas)


def test_effective_kurtosis_is_not_the_kurtosis_of_what_a_language_uses():
    """Two Gaussian layers of σ 1 and 3, used alike: κ_eff = 0, and the weights together have κ = 3·E[σ⁴]/E[σ²]² − 3 = 1.92."""
    random = np.random.default_rng(0)
    layers = [random.normal(0, sigma, 200_000) for sigma in (1.0, 3.0)]
    effective = 0.5 * sum(map(kurtosis, layers))
    assert effective == pytest.approx(0, abs=0.05)
    assert kurtosis(np.concatenate(layers)) == pytest.approx(3 * 41 / 25 - 3, abs=0.05)


def test_the_quadratic_law_holds_nearby_and_not_far_away():
    """MSE(α) − MSE(α*) ≈ ½MSE″·(f′Δκ)²: exact in the limit; at Δκ = 21 it is off several times over."""
    near, far = sharing_cost(3.05, 3.0, 4), sharing_cost(24.0, 3.0, 4)
    assert near.excess == pytest.approx(near.quadratic_law, rel=0.1)
    assert not 0.5 < far.excess / far.quadratic_law < 2
    # Proportional to Δκ² would be (21/0.05)².
    assert far.excess / near.excess < 0.5 * (21 / 0.05) ** 2


def test_disparity_is_not_proportional_to_the_ratio_of_kurtoses():
    """Disparity is the same with the languages exchanged, and |κ₁/κ₂ − 1| is not: no constant fits the pairs (κ₁, κ₂) and (κ₂, κ₁)."""
    shared = optimal_threshold(GeneralisedGaussian.of_kurtosis(3.0), 4).alpha
    losses = {k: float(model_mse(GeneralisedGaussian.of_kurtosis(k), shared, 4)) for k in (1.0, 2.0, 4.0, 8.0)}
    constants = [abs(losses[a] - losses[b]) / abs(a / b - 1) for a in losses for b in losses if a != b]
    assert max(constants) > 5 * min(constants)


def test_equal_kurtosis_does_not_mean_equal_losses():
    """κ₁ = κ₂, so the theorem gives no disparity. With one α for both, the language with twice the σ loses more."""
    random = np.random.default_rng(1)
    weights = random.normal(size=20_000)
    alpha = true_optimal_threshold(weights, 4).alpha
    errors = [float(np.mean((values - quantize(values, alpha, 4)) ** 2)) for values in (weights, 2 * weights)]
    assert kurtosis(weights) == pytest.approx(kurtosis(2 * weights))
    assert errors[1] > 10 * errors[0]


def test_published_optima_of_the_noise_model():
    """2.5σ for a Gaussian at 4 bits holds. 2.83 holds at 4 bits for neither: it is Banner's optimum for a Laplacian at 2 bits, in units of
    b = σ/√2 and with the step 2α/2^B, where α/(3·4^B) = b·exp(−α/b)."""
    assert optimal_threshold(GeneralisedGaussian(2.0), 4).alpha == pytest.approx(2.523, abs=1e-3)
    assert optimal_threshold(GeneralisedGaussian(1.0), 4).alpha == pytest.approx(3.480, abs=1e-3)
    assert brentq(lambda alpha: alpha / (3 * 4**2) - np.exp(-alpha), 1, 5) == pytest.approx(2.83, abs=5e-3)
