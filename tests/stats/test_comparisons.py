"""What differences and ratios of two quantizations promise whatever the losses are; how often they cover is in test_coverage.py."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laaciq.trials.losses import Losses

CODES = ["eng", "swa", "hin", "tam"]
TOKENS = 50.0
RATIOS = ["mean_ratio", "worst_ratio", "disparity_ratio"]
DIFFERENCES = ["mean_difference", "worst_difference", "disparity_difference"]


def losses(per_token, *, parallel):
    """From losses per token, (languages, documents) or (draws of calibration text, languages, documents)."""
    names = [f"d{place}" for place in range(per_token.shape[-1])]
    return Losses.of(
        {code: TOKENS * loss for code, loss in zip(CODES, np.moveaxis(per_token, -2, 0), strict=True)},
        {code: np.full(len(names), TOKENS) for code in CODES},
        {code: names for code in CODES},
        parallel=parallel,
        seed=0,
        draws=400,
    )


def drawn(seed, *, loss=0.1, spread=0.05, documents=12):
    return np.random.default_rng(seed).normal(loss, spread, (len(CODES), documents))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), parallel=st.booleans(), loss=st.floats(-0.1, 0.3), documents=st.integers(2, 20))
def test_every_interval_contains_its_estimate(seed, parallel, loss, documents):
    left = losses(drawn(seed, loss=loss, documents=documents), parallel=parallel)
    right = losses(drawn(seed + 1, documents=documents), parallel=parallel)
    estimates = [getattr(left, name)(right) for name in RATIOS + DIFFERENCES]
    estimates += [left.mean(), left.worst()[1], left.disparity().estimate, *left.by_language().values()]
    for estimate in estimates:
        assert estimate.low <= estimate.value <= estimate.high
    assert left.disparity_ratio(right).low >= 0


@pytest.mark.parametrize("parallel", [True, False])
def test_sides_exchanged_give_the_opposite_difference_and_the_inverse_ratio(parallel):
    left, right = losses(drawn(1), parallel=parallel), losses(drawn(2, loss=0.2), parallel=parallel)
    for name in DIFFERENCES:
        one, other = getattr(left, name)(right), getattr(right, name)(left)
        # Noise is drawn anew for the exchanged sides: 400 draws move an end by some percent of the interval.
        tolerance = 0.15 * (one.high - one.low)
        assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low), abs=tolerance)
    for name in ("mean_ratio", "worst_ratio"):
        one, other = getattr(left, name)(right), getattr(right, name)(left)
        assert (one.low, one.high) == pytest.approx((1 / other.high, 1 / other.low), rel=0.15)


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("factor", [3.0, 150.0, 0.2])
def test_a_multiple_of_itself_has_an_exact_ratio(factor, parallel):
    """All noise is shared: there is none in the ratio. Ends are computed to one in a thousand."""
    per_token = drawn(3)
    whole = losses(per_token, parallel=parallel)
    for name in ("mean_ratio", "worst_ratio"):
        ratio = getattr(losses(factor * per_token, parallel=parallel), name)(whole)
        assert (ratio.value, ratio.low, ratio.high) == pytest.approx((factor,) * 3, rel=2e-3)


def test_the_mean_ratio_is_fiellers():
    """Of one language, by the textbook: the roots of (a − rb)² = t²(v_a − 2r·c + r²v_b)."""
    left, right = drawn(4)[0], drawn(5, loss=0.3)[0]
    rows = losses(np.tile(left, (4, 1)), parallel=True), losses(np.tile(right, (4, 1)), parallel=True)
    ratio = rows[0].only(["eng"]).mean_ratio(rows[1].only(["eng"]))
    count, quantile = len(left), 2.2009851600916388  # R: qt(0.975, 11)
    covariance = np.cov(left, right) / count
    roots = np.roots(
        [
            right.mean() ** 2 - quantile**2 * covariance[1, 1],
            -2 * (left.mean() * right.mean() - quantile**2 * covariance[0, 1]),
            left.mean() ** 2 - quantile**2 * covariance[0, 0],
        ]
    )
    # Skewness lengthens one end: these samples have little of it.
    assert (ratio.low, ratio.high) == pytest.approx((roots.min(), roots.max()), rel=0.06)


def test_a_ratio_to_what_may_be_nothing_has_no_upper_end():
    left = losses(drawn(6), parallel=True)
    noise = drawn(7, loss=0.0)
    little, less = (losses(noise - noise.mean() + loss, parallel=True) for loss in (0.001, -0.001))
    assert left.mean_ratio(little).high == math.inf
    assert 0 < left.mean_ratio(little).low < left.mean_ratio(little).value
    assert (left.mean_ratio(less).low, left.mean_ratio(less).high) == (-math.inf, math.inf)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), parallel=st.booleans(), apart=st.floats(0, 0.2))
def test_disparity_is_beyond_noise_exactly_where_it_exceeds_the_noise_floor(seed, parallel, apart):
    per_token = drawn(seed)
    per_token[0] += apart
    disparity = losses(per_token, parallel=parallel).disparity()
    assert (disparity.estimate.low > 0) == (disparity.estimate.value > disparity.noise_floor)


def test_noise_that_all_languages_share_is_none_between_them():
    """Documents differ far more than languages: parallel text tells the languages apart, other text cannot."""
    random = np.random.default_rng(8)
    per_token = 0.3 * random.normal(size=12) + 0.01 * random.normal(size=(4, 12)) + np.array([[0], [0.1], [0.1], [0.1]])
    assert losses(per_token, parallel=True).disparity().estimate.low > 0.05
    assert losses(per_token, parallel=False).disparity().estimate.low == 0


def test_draws_of_calibration_text_widen_every_interval():
    """Five draws that differ by more than documents do."""
    per_token = drawn(9, spread=0.01)
    shifts = np.array([-0.05, -0.02, 0.0, 0.02, 0.05])[:, None, None]
    one, several = losses(per_token, parallel=True), losses(per_token + shifts, parallel=True)
    for narrow, wide in ((one.mean(), several.mean()), (one.worst()[1], several.worst()[1])):
        assert wide.high - wide.low > 3 * (narrow.high - narrow.low)
