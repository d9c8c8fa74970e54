import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from laaciq.errors import BadOption, BrokenModel
from laaciq.options import BITS
from laaciq.profiling.histogram import PATTERNS, PatternHistogram

DTYPE = st.sampled_from([torch.float16, torch.bfloat16])


@st.composite
def tensors(draw, dtype=DTYPE):
    """Heavy tails, means far from zero, zeros, single elements, transposes and slices with gaps."""
    shape = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    values = torch.randn(shape, generator=random) ** draw(st.sampled_from([1, 3, 5]))
    values = values * 10.0 ** draw(st.integers(-3, 1)) + draw(st.sampled_from([0, 0, 1, -100]))
    tensor = (values * torch.rand(shape, generator=random).round() if draw(st.booleans()) else values).to(draw(dtype))
    return {"as it is": tensor, "transposed": tensor.mT if tensor.ndim > 1 else tensor, "sliced": tensor[..., ::2]}[
        draw(st.sampled_from(["as it is", "transposed", "sliced"]))
    ]


def wide(tensor):
    return tensor.double().numpy().ravel()


def simulated_mse(tensor, alpha, bits):
    """The quantizer in torch, weight by weight."""
    levels = 2 ** (bits - 1) - 1
    x = tensor.double()
    return (x - alpha * (x.clamp(-alpha, alpha) * levels / alpha).round() / levels).square().mean().item()


@given(DTYPE)
def test_every_pattern_has_its_value(dtype):
    values = PatternHistogram.of(torch.ones(1, dtype=dtype)).values
    for pattern in (0x0000, 0x0001, 0x1234, 0x8001, 0xBEEF):
        bits = torch.tensor([pattern], dtype=torch.int32).to(torch.int16)
        assert values[pattern] == bits.view(dtype).item()


@settings(deadline=None)
@given(tensors())
def test_moments_are_those_of_scipy(tensor):
    histogram, values = PatternHistogram.of(tensor), wide(tensor)
    assert histogram.count == len(values)
    assert histogram.mean == pytest.approx(values.mean(), rel=1e-12, abs=1e-12 * np.abs(values).max())
    assert histogram.sigma == pytest.approx(values.std(), rel=1e-12, abs=1e-15 * np.abs(values).max())
    if np.ptp(values) == 0:
        assert histogram.sigma == histogram.kurtosis == 0
    else:
        kurtosis = stats.kurtosis(values)
        assert abs(histogram.kurtosis - kurtosis) < 1e-9 * (kurtosis + 3)


@settings(deadline=None)
@given(tensors(), st.sampled_from([0.01, 0.1, 1, 5, 10, 50, 100]))
def test_top_shares_are_those_of_the_sorted_magnitudes(tensor, percent):
    magnitudes = np.sort(np.abs(wide(tensor)))[::-1]
    top = magnitudes[: int(np.ceil(len(magnitudes) * percent / 100))].sum()
    expected = top / magnitudes.sum() if magnitudes.any() else 0.0
    assert PatternHistogram.of(tensor).top_share(percent) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(tensors())
def test_the_super_weight_ratio_is_of_the_two_largest(tensor):
    magnitudes = np.sort(np.abs(wide(tensor)))[::-1]
    expected = magnitudes[0] / magnitudes[1] if len(magnitudes) > 1 and magnitudes[1] else None
    assert PatternHistogram.of(tensor).super_weight_ratio == expected


@settings(deadline=None)
@given(tensors(), st.sampled_from(BITS), st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5))
def test_the_true_error_is_that_of_the_simulated_quantizer(tensor, bits, alphas):
    errors = PatternHistogram.of(tensor).clipped_mse(np.array(alphas), bits)
    assert errors.shape == (len(alphas),)
    for alpha, error in zip(alphas, errors, strict=True):
        # Errors of weights on the grid are rounding errors of the weight; squared, and with room.
        slack = 1e-28 * float(tensor.double().square().max())
        assert error == pytest.approx(simulated_mse(tensor, alpha, bits), rel=1e-9, abs=slack)


def test_the_true_error_of_a_gaussian_is_least_near_two_and_a_half_sigma():
    """At 4 bits. The noise model's optimum is 2.52 with 15 steps over 2α; the true quantizer has 14, and its optimum is nearby."""
    weights = torch.randn(2**20, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    alphas = np.linspace(1, 5, 401)
    best = alphas[PatternHistogram.of(weights).clipped_mse(alphas, 4).argmin()]
    assert 2.4 < best < 2.7


def test_the_shape_of_the_thresholds_is_kept():
    histogram = PatternHistogram.of(torch.ones(3, dtype=torch.float16))
    assert histogram.clipped_mse(1.0, 4).shape == ()
    assert histogram.clipped_mse(np.full((2, 3), 0.5), 4) == pytest.approx(np.full((2, 3), 0.25))


@pytest.mark.parametrize(("alpha", "bits"), [(0.0, 4), (-1.0, 4), (np.nan, 4), (np.inf, 4), (1.0, 1)])
def test_a_grid_that_does_not_exist_is_refused(alpha, bits):
    with pytest.raises(BadOption, match="2 bits or more"):
        PatternHistogram.of(torch.ones(3, dtype=torch.float16)).clipped_mse(alpha, bits)


@settings(deadline=None)
@given(st.data(), DTYPE)
def test_pooling_is_counting_together(data, dtype):
    parts = data.draw(st.lists(tensors(dtype=st.just(dtype)), min_size=2, max_size=4))
    pooled = sum(map(PatternHistogram.of, parts[1:]), PatternHistogram.of(parts[0]))
    together = PatternHistogram.of(torch.cat([part.reshape(-1) for part in parts]))
    assert np.array_equal(pooled.counts, together.counts)


def test_large_tensors_are_counted_exactly():
    """Through whole pieces and a remainder, in memory order and with gaps; one pattern more often than float32 can count by ones."""
    random = torch.Generator().manual_seed(0)
    tensor = (0.02 * torch.randn(1001, 1003, generator=random)).to(torch.bfloat16)
    for view in (tensor, tensor.mT, tensor[:, 1:], tensor[::2, ::3], tensor[None, :, None, 1:].expand(2, -1, 2, -1)):
        patterns = view.reshape(-1).view(torch.int16).numpy().view(np.uint16)
        assert np.array_equal(PatternHistogram.of(view).counts, np.bincount(patterns, minlength=PATTERNS))
    many = torch.zeros(2**25 + 5, dtype=torch.float16)
    many[::1001] = 1
    zeros = int((many == 0).sum())
    assert PatternHistogram.of(many).counts[0] == zeros


def test_broken_weights_are_counted_and_refused():
    tensor = torch.zeros(4, 5, dtype=torch.float16)
    tensor[0, 0], tensor[1, 1], tensor[2, 2] = torch.nan, torch.inf, -torch.inf
    with pytest.raises(BrokenModel, match="3 of 20 weights are NaN or infinite"):
        PatternHistogram.of(tensor)


def test_only_16_bit_tensors_of_one_dtype():
    half, brain = (PatternHistogram.of(torch.ones(2, dtype=dtype)) for dtype in (torch.float16, torch.bfloat16))
    with pytest.raises(BadOption, match=r"float16 and torch\.bfloat16"):
        half + brain
    with pytest.raises(BadOption, match="float32"):
        PatternHistogram.of(torch.ones(2))


def test_a_parameter_that_wants_gradients_is_read_all_the_same():
    assert PatternHistogram.of(torch.nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))).mean == 1
