import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laaciq.clipping.distributions import GAUSSIAN, LAPLACIAN, GeneralisedGaussian, StudentT
from laaciq.clipping.noise_model import model_mse
from laaciq.clipping.optimum import optimal_threshold, scan_points, true_optimal_threshold
from laaciq.clipping.quantizer import quantize, true_mse
from laaciq.errors import BadOption
from laaciq.profiling.histogram import PatternHistogram

MEMBERS = st.one_of(st.floats(0.3, 20).map(GeneralisedGaussian), st.floats(4.1, 200).map(StudentT))
BITS = st.integers(2, 8)


@st.composite
def samples(draw):
    """Few or many values, light tails and heavy ones, ties, zeros."""
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    values = random.standard_normal(draw(st.integers(1, 200))) ** draw(st.sampled_from([1, 3]))
    values = values.round(1) if draw(st.booleans()) else values
    return np.append(values, 0.5)


@pytest.mark.parametrize(
    ("member", "published"),
    [
        (GAUSSIAN, [1.518, 2.069, 2.523, 2.920, 3.279, 3.612, 3.922]),
        (LAPLACIAN, [1.707, 2.606, 3.480, 4.349, 5.222, 6.103, 6.993]),
    ],
)
def test_thresholds_of_the_noise_model(member, published):
    assert [round(optimal_threshold(member, bits).alpha, 3) for bits in range(2, 9)] == published


def test_banner_s_laplacian_figure_is_of_two_bits():
    """α/b = 2.83 in the ACIQ paper, which puts 2^B steps of 2α/2^B; b = σ/√2. At 4 bits it is 5.03."""
    clipping_and_noise = lambda alpha, bits: 2 * np.exp(-alpha) + alpha**2 / (3 * 4**bits)  # noqa: E731
    alphas = np.linspace(1, 10, 90_001)
    assert alphas[clipping_and_noise(alphas, 2).argmin()] == pytest.approx(2.83, abs=0.005)
    assert alphas[clipping_and_noise(alphas, 4).argmin()] == pytest.approx(5.03, abs=0.005)


def test_true_thresholds_at_two_bits_are_those_of_the_centroid():
    """Three levels: α is the mean of what rounds to it, |X| > α/2. A Laplacian's tail has mean α/2 + b, so α = 2b = √2."""
    assert true_optimal_threshold(LAPLACIAN, 2).alpha == pytest.approx(np.sqrt(2), abs=1e-6)
    alpha = true_optimal_threshold(GAUSSIAN, 2).alpha
    assert alpha == pytest.approx(
        float(GAUSSIAN.tail_moment(1, alpha / 2) / GAUSSIAN.tail_moment(0, alpha / 2)), abs=1e-6
    )


@given(MEMBERS, BITS, st.sampled_from(["published", "real"]))
def test_no_threshold_is_better_under_the_noise_model(member, bits, step):
    best = optimal_threshold(member, bits, step=step)
    errors = model_mse(member, np.geomspace(0.01, 300, 1000), bits, step=step)
    assert best.mse <= errors.min() * (1 + 1e-12)


@settings(max_examples=20)
@given(MEMBERS, BITS)
def test_no_threshold_is_better_under_the_true_error(member, bits):
    errors = true_mse(member, np.geomspace(0.1, 100, 200), bits)
    assert true_optimal_threshold(member, bits).mse <= errors.min() * (1 + 1e-9)


@given(MEMBERS, BITS)
def test_more_bits_want_more_room_and_leave_less_error(member, bits):
    few, more = optimal_threshold(member, bits), optimal_threshold(member, bits + 1)
    assert more.alpha > few.alpha
    assert more.mse < few.mse


@settings(max_examples=20)
@given(samples(), BITS)
def test_no_scanned_point_is_better_on_a_sample(values, bits):
    best = true_optimal_threshold(values, bits)
    magnitudes = np.abs(values)
    highest = magnitudes.max() * min(2 ** (bits - 1) - 1, 2)
    for alpha in scan_points(min(magnitudes.mean(), highest), highest, np.count_nonzero(values))[::7]:
        error = np.mean((values - quantize(values, alpha, bits)) ** 2)
        # Errors of values on the grid are rounding errors.
        assert best.mse <= error * (1 + 1e-9) + 1e-28 * highest**2
    assert best.mse == pytest.approx(np.mean((values - quantize(values, best.alpha, bits)) ** 2), rel=1e-6, abs=1e-24)


@settings(max_examples=20)
@given(samples(), BITS, st.integers(-30, 30))
def test_the_threshold_scales_with_sigma(values, bits, power):
    """By powers of two nothing is rounded."""
    unscaled, scaled = true_optimal_threshold(values, bits), true_optimal_threshold(values * 2.0**power, bits)
    assert scaled.alpha == unscaled.alpha * 2.0**power
    assert scaled.mse == unscaled.mse * 4.0**power


@settings(max_examples=20)
@given(samples(), BITS)
def test_weights_are_repetitions(values, bits):
    weights = np.arange(len(values)) % 3
    weights[-1] = 1
    weighted = true_optimal_threshold(values, bits, weights=weights)
    repeated = true_optimal_threshold(np.repeat(values, weights), bits)
    # Two minima may be equal but for rounding: the errors are compared.
    assert weighted.mse == pytest.approx(repeated.mse, rel=1e-6, abs=1e-15)


def test_a_histogram_is_its_weights():
    tensor = (0.02 * torch.randn(5000, generator=torch.Generator().manual_seed(0))).to(torch.bfloat16)
    result = true_optimal_threshold(PatternHistogram.of(tensor), 4)
    wide = tensor.double().numpy()
    values, counts = np.unique(wide, return_counts=True)
    assert result.mse == pytest.approx(true_optimal_threshold(values, 4, weights=counts).mse, rel=1e-9)
    assert result.mse == pytest.approx(np.mean((wide - quantize(wide, result.alpha, 4)) ** 2), rel=1e-9)


def test_a_large_sample_has_its_distribution_s_threshold():
    sample = np.random.default_rng(0).laplace(scale=1 / np.sqrt(2), size=100_000)
    # The error is flat about its minimum: a threshold off by 3 % costs some 0.1 %.
    assert true_optimal_threshold(sample, 4).alpha == pytest.approx(
        true_optimal_threshold(LAPLACIAN, 4).alpha, rel=0.03
    )


@pytest.mark.parametrize(
    ("source", "weights"),
    [
        ([], None),
        ([0.0, 0.0], None),
        ([1.0, np.nan], None),
        ([1.0, 2.0], [1.0]),
        ([1.0, 2.0], [1.0, -1.0]),
        ([1.0, 2.0], [0.0, 0.0]),
        (GAUSSIAN, [1.0]),
        (PatternHistogram.of(torch.ones(2, dtype=torch.float16)), [1.0]),
    ],
)
def test_what_cannot_be_clipped_is_refused(source, weights):
    with pytest.raises(BadOption):
        true_optimal_threshold(source, 4, weights=weights)
