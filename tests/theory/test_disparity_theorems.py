"""docs/theorems.md, sections 3 to 6: bounds on disparity, conditions for it, redundancy, gateway layers, alignment, the causal graph.

D(λ) = Σ ā_l(λ)·m_l with m_l = σ_l²·g(κ_l, B) is the theory's own model of losses; counterexamples are made in it.
"""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laaciq.clipping.distributions import GeneralisedGaussian
from laaciq.clipping.noise_model import model_mse
from laaciq.clipping.optimum import optimal_threshold
from laaciq.clipping.quantizer import quantize
from laaciq.quantization.plan import TensorPlan
from laaciq.stats.mediation import mediate
from tests.published import PUBLISHED

BITS = 4


def layer_errors(sigmas, kurtoses):
    """m_l = σ_l²·g(κ_l, B), each layer clipped at its optimum."""
    errors = []
    for sigma, kurtosis in zip(sigmas, kurtoses, strict=True):
        distribution = GeneralisedGaussian.of_kurtosis(kurtosis)
        errors.append(sigma**2 * float(model_mse(distribution, optimal_threshold(distribution, BITS).alpha, BITS)))
    return np.array(errors)


def disparity(fractions, errors):
    losses = np.asarray(fractions) @ errors
    return float(np.ptp(losses))


# Bounds


def test_no_constant_bounds_disparity_by_the_variance_of_effective_kurtosis():
    """Two layers of one κ and unlike σ: κ_eff is the same for both languages, its variance 0, and the disparity is not."""
    fractions, kurtoses = np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([6.0, 6.0])
    assert np.ptp(fractions @ kurtoses) == pytest.approx(0, abs=1e-12)
    assert disparity(fractions, layer_errors([1.0, 3.0], kurtoses)) > 1e-2


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12), st.floats(0.1, 3))
def test_where_losses_are_a_lipschitz_function_of_effective_kurtosis_it_is_bounded(kurtoses, lipschitz):
    """|Φ(a) − Φ(b)| ≤ K|a − b| gives disparity ≤ K·range ≤ K·√(2n)·sd: the constant grows with the number of languages."""
    losses = lipschitz * np.abs(kurtoses)
    assert np.ptp(losses) <= lipschitz * np.sqrt(2 * len(kurtoses)) * np.std(kurtoses) + 1e-9


def test_the_square_root_of_2n_is_reached():
    """Two languages at the ends and all others in the middle."""
    kurtoses = np.array([-1.0, 1.0, *np.zeros(10)])
    assert np.ptp(kurtoses) == pytest.approx(np.sqrt(2 * 12) * np.std(kurtoses))


def test_the_refined_bound_is_violated():
    """max|g′|·Var[ā]·max σ² is quadratic in the spread of ā, and disparity is linear: for a small spread the bound fails."""
    errors, sigmas = layer_errors([1.0, 1.0], [0.0, 20.0]), [1.0, 1.0]
    step = 1e-3
    slope = max(
        abs(np.diff(layer_errors([1.0, 1.0], [kurtosis, kurtosis + step]))[0]) / step
        for kurtosis in np.linspace(0, 20, 41)
    )
    spread = 1e-3
    fractions = np.array([[0.5 + spread, 0.5 - spread], [0.5 - spread, 0.5 + spread]])
    bound = slope * fractions.var(axis=0).max() * max(sigmas) ** 2
    assert disparity(fractions, errors) > 100 * bound


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(2, 8))
def test_what_holds_in_its_place(seed, languages, layers):
    """D(λ) − D(λ′) = Σ(ā_l − ā′_l)(m_l − c) for any c, since both ā sum to 1: disparity ≤ max TV(ā, ā′)·(max m − min m)."""
    random = np.random.default_rng(seed)
    fractions, errors = random.dirichlet(np.ones(layers), languages), random.exponential(size=layers)
    variation = max(0.5 * np.abs(a - b).sum() for a, b in combinations(fractions, 2))
    assert disparity(fractions, errors) <= variation * np.ptp(errors) + 1e-12


# Conditions


def test_outlier_layers_are_not_necessary():
    """(C1) fails, all layers are Gaussian (κ = 0), and languages lose unequally: σ differs between layers. κ < 5 does not mean no disparity."""
    errors = layer_errors([1.0, 4.0], [0.0, 0.0])
    assert disparity([[0.9, 0.1], [0.1, 0.9]], errors) > 5 * errors.min()


def test_varying_use_of_outlier_layers_is_not_necessary():
    """(C2) fails, R̂ is the same for both languages, and they use the other layers unequally."""
    kurtoses = [100.0, 0.0, 0.0]
    fractions = np.array([[0.2, 0.7, 0.1], [0.2, 0.1, 0.7]])
    assert np.ptp(fractions[:, 0]) == 0
    assert disparity(fractions, layer_errors([1.0, 1.0, 3.0], kurtoses)) > 1e-2


def test_with_equal_fractions_there_is_no_disparity():
    """What is necessary in the theory's model: the fractions of *all* layers vary."""
    assert disparity([[0.3, 0.7]] * 4, layer_errors([1.0, 3.0], [100.0, 0.0])) == pytest.approx(0, abs=1e-15)


# Redundancy


def entropy(probabilities):
    return float(-(probabilities * np.log2(probabilities)).sum())


def test_redundancy_does_not_bound_the_error():
    """R = H_max − H is that of probabilities, and the error that of values. The more redundant language has the larger error."""
    redundant, dense = np.array([0.9, 0.1]), np.full(16, 1 / 16)
    assert 4 - entropy(redundant) > 4 - entropy(dense)
    # Two values between grid points, and 16 values that are all close to zero.
    alpha = 1.0
    of_redundant = redundant @ (np.array([0.5, 0.93]) - quantize([0.5, 0.93], alpha, BITS)) ** 2
    small = np.linspace(0, 1e-4, 16)
    of_dense = dense @ (small - quantize(small, alpha, BITS)) ** 2
    assert of_redundant > 1e5 * of_dense


def test_no_quantizer_is_bound_to_hurt_the_less_redundant_language():
    """'For any scheme ε_LR/ε_HR ≥ c·R_HR/R_LR': values of the less redundant language lie on the grid, so its ε is 0."""
    levels = 2 ** (BITS - 1) - 1
    low, high = np.arange(-levels, levels + 1) / levels, np.array([-0.5, 0.5])
    assert len(low) > len(high)  # more values, all alike: less redundancy
    errors = [float(np.mean((values - quantize(values, 1.0, BITS)) ** 2)) for values in (low, high)]
    assert errors[0] < 1e-30 < errors[1]


def test_information_redundancy_is_a_share_and_activation_is_no_proxy_for_it():
    """R(λ) = I(h_o; y | h_g)/I(h_o, h_g; y) lies in [0, 1] by the chain rule. A constant outlier layer of large norm has R̂ near 1 and R = 0."""
    outputs = np.array([0, 1])
    generic, outlier = outputs.astype(float), np.full(2, 1000.0)
    fraction = np.abs(outlier).mean() / (np.abs(outlier).mean() + np.abs(generic).mean())
    # y is a function of h_g alone: given h_g, no information is left, H(y | h_g) = 0.
    assert fraction > 0.99
    assert {value: set(outputs[generic == value]) for value in generic} == {0.0: {0}, 1.0: {1}}


# Gateway layers


def disparity_protecting(costs, protected):
    left = [layer for layer in range(costs.shape[1]) if layer not in protected]
    return float(np.ptp(costs[:, left].sum(1)))


def test_first_and_last_layers_need_not_be_protected():
    """Losses add over layers, and languages differ in layers 3, 4 and 5 alone: of all 220 triples these are best, and others are worse."""
    costs = np.full((2, 12), 0.01)
    costs[1, [3, 4, 5]] += [0.05, 0.04, 0.03]
    triples = {triple: disparity_protecting(costs, triple) for triple in combinations(range(12), 3)}
    assert len(triples) == 220
    best = [triple for triple, value in triples.items() if value <= min(triples.values()) + 1e-12]
    assert best == [(3, 4, 5)]
    assert triples[0, 9, 11] == pytest.approx(0.12)


def test_protecting_a_layer_may_raise_disparity():
    """Layers that offset each other: without the layer that hurts one language, the other's loss stands alone."""
    costs = np.array([[0.1, 0.0], [0.0, 0.1]])
    assert disparity_protecting(costs, ()) == 0 < disparity_protecting(costs, (0,))


def test_the_layer_of_largest_variance_may_be_the_wrong_one():
    """Layer 0 varies most between languages, and offsets the others. Protecting it raises disparity; the layer that varies least is best."""
    costs = np.array([[0.30, 0.00, 0.00], [0.00, 0.29, 0.10]])
    by_layer = [disparity_protecting(costs, (layer,)) for layer in range(3)]
    assert costs.var(axis=0).argmax() == 0 and costs.var(axis=0).argmin() == 2
    assert by_layer[0] > disparity_protecting(costs, ()) > by_layer[2] == min(by_layer)


# Alignment


def test_more_alignment_may_go_with_more_loss():
    """A layer w = (0.5, 1): 0.5 is between grid points and 1 is on the grid. The language nearer to English uses 0.5, the other 1."""
    weights = np.array([0.5, 1.0])
    error = weights - quantize(weights, 1.0, BITS)
    english, near, far = np.array([1.0, 0.1]), np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def alignment(x):
        return float(x @ english / np.linalg.norm(x) / np.linalg.norm(english))

    assert alignment(near) > alignment(far)
    assert abs(near @ error) > 1e-2 > abs(far @ error)


# The causal graph


def test_without_confounders_the_chain_of_coefficients_is_the_effect_of_the_cause():
    """T → A → R → D, linear: E[D | do(T + 1)] − E[D | do(T)] = 0.8·0.7·(−0.6). 4,000 rows leave ±0.06 (three standard errors)."""
    random = np.random.default_rng(0)
    cause, *noises = random.normal(size=(4, 4000))
    alignment = 0.8 * cause + noises[0]
    redundancy = 0.7 * alignment + noises[1]
    result = mediate(cause, [alignment, redundancy], -0.6 * redundancy + noises[2], kind="percentile", draws=20)
    assert result.chain.value == pytest.approx(0.8 * 0.7 * -0.6, abs=0.06)
    assert result.share == pytest.approx(1.0, abs=0.2)


def test_a_confounder_makes_a_mediated_effect_where_the_cause_does_nothing():
    """Exposure decides tokenization, alignment and loss; tokenization decides nothing. Mediation finds most of an effect, do(T) none."""
    random = np.random.default_rng(1)
    exposure, *noises = random.normal(size=(4, 2000))
    tokenization = exposure + 0.5 * noises[0]
    alignment = exposure + 0.5 * noises[1]
    loss = -exposure + 0.5 * noises[2]
    result = mediate(tokenization, [alignment], loss, kind="percentile", draws=100)
    assert result.indirect.high < -0.2 and result.share > 0.3
    # do(T): the loss is computed without T, whatever T is set to.
    adjusted = np.linalg.lstsq(np.stack([tokenization, exposure], 1), loss, rcond=None)[0]
    assert adjusted[0] == pytest.approx(0, abs=0.1)


# Figures


def test_corrections_to_the_published_figures():
    rows = PUBLISHED["bloom_560m"]["languages"].values()
    kappa, fraction, loss = (
        np.array([row[name] for row in rows]) for name in ("effective_kurtosis", "outlier_fraction", "D")
    )
    layers = np.array(PUBLISHED["bloom_560m"]["layer_kurtosis"])
    assert np.var(kappa, ddof=1) == pytest.approx(2.70, abs=0.005)
    assert np.ptp(loss) / np.std(kappa, ddof=1) == pytest.approx(0.012, abs=5e-4)
    assert np.corrcoef(kappa, loss)[0, 1] == pytest.approx(-0.766, abs=5e-4)
    assert np.var(fraction, ddof=1) == pytest.approx(9e-5, rel=0.01) and np.ptp(fraction) == pytest.approx(
        0.033, abs=5e-4
    )
    assert [*np.flatnonzero(layers > 100)] == [5, 21, 22] and [*np.flatnonzero(layers > 50)] == [4, 5, 21, 22]
    shares = [model["top_10%"] for model in PUBLISHED["outlier_density"].values()]
    assert (round(min(shares), 2), round(max(shares), 2)) == (0.27, 0.45)
    ratios = PUBLISHED["super_weight_ratio_max"].values()
    assert (round(min(ratios), 1), round(max(ratios), 1)) == (1.5, 2.9)


@pytest.mark.parametrize("percent, larger", [(5.0, 0.39), (10.0, 0.78)])
def test_kept_weights_cost_more_than_was_published(percent, larger):
    """'The top 5 to 10 % in 16 bits make INT4 5 to 10 % larger': with their places they make it 40 to 78 % larger."""
    plain = TensorPlan(name="w", shape=(1024, 1024), bits=4, group_size=128, symmetric=True)
    kept = plain.model_copy(update={"keep": percent})
    assert kept.stored_bits > (1 + larger) * plain.stored_bits
