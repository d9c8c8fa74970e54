import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laaciq.clipping.distributions import GAUSSIAN, LAPLACIAN, StudentT
from laaciq.clipping.quantizer import quantize, true_mse
from laaciq.errors import BadOption

BITS = st.integers(2, 8)
VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20).map(np.array)


@given(VALUES, st.floats(1e-3, 1e3), BITS)
def test_quantizing_twice_is_quantizing_once(values, alpha, bits):
    once = quantize(values, alpha, bits)
    assert np.array_equal(quantize(once, alpha, bits), once)


@given(VALUES, st.floats(1e-3, 1e3), BITS)
def test_the_nearest_level_within_the_threshold(values, alpha, bits):
    levels = alpha * np.arange(1 - 2 ** (bits - 1), 2 ** (bits - 1)) / (2 ** (bits - 1) - 1)
    nearest = np.abs(values[:, None] - levels).min(axis=1)
    quantized = quantize(values, alpha, bits)
    assert np.abs(quantized).max() <= alpha
    assert np.abs(values - quantized) == pytest.approx(nearest, rel=1e-9, abs=1e-9 * alpha)


def test_thresholds_broadcast():
    assert quantize([[0.9, 0.2], [0.9, 0.2]], [[1.0], [0.5]], 2).tolist() == [[1.0, 0.0], [0.5, 0.0]]


@pytest.mark.parametrize("member", [GAUSSIAN, LAPLACIAN, StudentT(5.0)])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_the_true_error_of_a_distribution_is_that_of_a_fine_grid(member, bits):
    """Every cell of the grid weighs as the distribution says."""
    edges = np.sinh(np.linspace(0, 9, 200_001))
    weights = -np.diff(member.tail_moment(0, edges))
    middles = (edges[1:] + edges[:-1]) / 2
    alphas = np.array([1.0, 2.5, 6.0])
    simulated = [weights @ (middles - quantize(middles, alpha, bits)) ** 2 for alpha in alphas]
    assert true_mse(member, alphas, bits) == pytest.approx(np.array(simulated), rel=1e-3)


@pytest.mark.parametrize(("alpha", "bits"), [(0.0, 4), (-1.0, 4), (np.nan, 4), (np.inf, 4), (1.0, 1)])
def test_a_grid_that_does_not_exist_is_refused(alpha, bits):
    with pytest.raises(BadOption):
        quantize([1.0], alpha, bits)
    with pytest.raises(BadOption):
        true_mse(GAUSSIAN, alpha, bits)
