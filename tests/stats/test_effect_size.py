"""Against R, closed forms, and by how often intervals cover."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from laaciq.stats.effect_size import cliffs_delta, cohens_d, hedges_g
from tests.stats.sleep import FIRST, SECOND


def test_cohens_d_and_hedges_g_of_sleep_are_those_of_r():
    """effectsize::cohens_d(extra ~ group, data = sleep) and hedges_g: ends to 1e-7. More digits, with t from t.test(var.equal = TRUE):
    uniroot(function(n) pt(t, 18, n) - 0.975, t + c(-6, 6), tol = 1e-13)$root / sqrt(5), and 0.025
    J <- exp(lgamma(9) - lgamma(8.5)) / 3"""
    d, g = cohens_d(FIRST, SECOND), hedges_g(FIRST, SECOND)
    assert (d.value, d.low, d.high) == pytest.approx((-0.8321810813, -1.7388168991, 0.0954503982), abs=1e-9)
    assert (g.value, g.low, g.high) == pytest.approx((-0.7969352392, -1.6651717907, 0.0914077328), abs=1e-9)
    # t = d √(nm/(n + m)).
    assert d.value * np.sqrt(5) == pytest.approx(stats.ttest_ind(FIRST, SECOND).statistic)


def test_hedges_g_is_unbiased():
    """The mean g of 2,000 pairs of groups of 5 that are 1 apart: ±0.05 are three standard errors; the mean d is 1.11."""
    random = np.random.default_rng(0)
    pairs = [(random.normal(1, 1, 5), random.normal(0, 1, 5)) for _ in range(2000)]
    factor = hedges_g(*pairs[0]).value / cohens_d(*pairs[0]).value
    d = [(left.mean() - right.mean()) / np.sqrt((left.var(ddof=1) + right.var(ddof=1)) / 2) for left, right in pairs]
    assert np.mean(d) > 1.07
    assert factor * np.mean(d) == pytest.approx(1.0, abs=0.05)


def test_cliffs_delta_is_that_of_r():
    """effsize::cliff.delta(treatment, control), which is
    d <- sign(outer(treatment, control, "-")); v <- (36 * sum((rowMeans(d) - mean(d))^2) + 100 * sum((colMeans(d) - mean(d))^2)
      - sum((d - mean(d))^2)) / (10 * 6 * 9 * 5); t <- qt(0.975, 14); m <- mean(d)
    (m - m^3 + c(-1, 1) * t * sqrt(v) * sqrt((1 - m^2)^2 + t^2 * v)) / (1 - m^2 + t^2 * v)"""
    treatment, control = [10, 10, 20, 20, 20, 30, 30, 30, 40, 50], [10, 20, 30, 40, 40, 50]
    delta = cliffs_delta(treatment, control)
    assert (delta.value, delta.low, delta.high) == pytest.approx((-0.25, -0.7265845889, 0.3890061902), abs=1e-10)
    # The package's saved test output.
    delta = cliffs_delta([10, 20, 20, 20, 30, 30, 30, 40, 50, 100], control)
    assert (delta.value, delta.low, delta.high) == pytest.approx((-0.06666667, -0.6082254, 0.5172431), abs=5e-8)


def test_groups_that_do_not_overlap_are_not_certain_to():
    delta = cliffs_delta([4.0, 5.0, 6.0, 7.0, 8.0, 9.0], [1.0, 2.0, 3.0])
    assert delta.value == delta.high == 1
    assert -1 <= delta.low < 1
    mirrored = cliffs_delta([1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    assert (mirrored.low, mirrored.high) == pytest.approx((-1.0, -delta.low))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(3, 9), m=st.integers(3, 9))
def test_exchanged_groups_have_the_opposite_effect(seed, n, m):
    random = np.random.default_rng(seed)
    left, right = random.normal(size=n), random.normal(size=m)
    for effect in (cohens_d, hedges_g, cliffs_delta):
        there, back = effect(left, right), effect(right, left)
        assert (back.value, back.low, back.high) == pytest.approx((-there.value, -there.high, -there.low), abs=1e-7)
        assert there.low <= there.value <= there.high


def test_intervals_of_effects_cover():
    """300 pairs of groups of 10 and 14, one standard deviation apart; δ is then 2Φ(1/√2) − 1. Three Monte Carlo errors are 3.8 %."""
    random, truth = np.random.default_rng(1), 2 * stats.norm.cdf(1 / np.sqrt(2)) - 1
    covered = np.zeros(2)
    for _ in range(300):
        left, right = random.normal(1, 1, 10), random.normal(0, 1, 14)
        d, delta = cohens_d(left, right), cliffs_delta(left, right)
        covered += [d.low <= 1 <= d.high, delta.low <= truth <= delta.high]
    assert covered / 300 == pytest.approx([0.95, 0.95], abs=0.038)
