import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laaciq.clipping.distributions import GAUSSIAN, GeneralisedGaussian, StudentT
from laaciq.clipping.noise_model import model_curvature, model_gradient, model_mse, noise, quantization_step
from laaciq.clipping.quantizer import true_mse
from laaciq.errors import BadOption

MEMBERS = st.one_of(st.floats(0.3, 20).map(GeneralisedGaussian), st.floats(4.1, 200).map(StudentT))
STEPS = st.sampled_from(["published", "real"])


def test_both_steps():
    assert quantization_step(1.5, 4, step="published") == pytest.approx(2 * 1.5 / 15)
    assert quantization_step(1.5, 4, step="real") == pytest.approx(1.5 / 7)
    assert noise([1.0, 2.0], 2, step="real") == pytest.approx(np.array([1, 4]) / 12)


@given(MEMBERS, st.floats(0.1, 20), st.integers(2, 12), STEPS)
def test_error_decreases_with_bits(member, alpha, bits, step):
    assert model_mse(member, alpha, bits + 1, step=step) < model_mse(member, alpha, bits, step=step)


@given(MEMBERS, st.floats(0.1, 6), st.integers(2, 8), STEPS)
def test_derivatives_are_those_of_the_differences(member, alpha, bits, step):
    h = 1e-4
    error, gradient = (
        [float(function(member, alpha + side, bits, step=step)) for side in (-h, h)]
        for function in (model_mse, model_gradient)
    )
    # Central differences: off by h² times the third derivative, and by rounding over h.
    assert (error[1] - error[0]) / (2 * h) == pytest.approx(model_gradient(member, alpha, bits, step=step), abs=1e-6)
    assert (gradient[1] - gradient[0]) / (2 * h) == pytest.approx(
        model_curvature(member, alpha, bits, step=step), abs=1e-6
    )


def test_the_model_with_the_real_step_meets_the_true_error_as_bits_grow():
    gaps = [float(model_mse(GAUSSIAN, 4.0, b, step="real") / true_mse(GAUSSIAN, 4.0, b)) - 1 for b in (2, 4, 6)]
    assert abs(gaps[0]) > 0.1
    assert abs(gaps[1]) < 0.01
    assert abs(gaps[2]) < 0.001


@pytest.mark.parametrize(("alpha", "bits", "step"), [(0.0, 4, "published"), (1.0, 1, "published"), (1.0, 4, "half")])
def test_bad_options(alpha, bits, step):
    with pytest.raises(BadOption):
        model_mse(GAUSSIAN, alpha, bits, step=step)
