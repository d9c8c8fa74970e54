import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from laaciq.errors import BadOption, BrokenModel
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
