"""Student's intervals, lengthened on the side of the long tail; exact where theory knows the answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from laaciq.stats.estimate import TAIL
from laaciq.stats.joint import JointEstimates, Part
from laaciq.stats.ratio import ratio_freedom, ratio_influence


def joint_of(*samples):
    """Means of independent samples, by the way that losses go."""
    parts = []
    for column, sample in enumerate(samples):
        influence = ratio_influence(np.array(sample), np.ones(len(sample)))[:, None]
        parts.append(Part(np.array([column]), influence, np.array([ratio_freedom(np.ones(len(sample)))])))
    return JointEstimates.of(np.array([np.mean(sample) for sample in samples]), parts)


def test_a_mean_of_symmetric_values_has_students_interval():
    sample = [1.0, 2.0, 4.0, 6.0, 7.0]
    expected = stats.ttest_1samp(sample, 0).confidence_interval()
    joint = joint_of(sample)
    (below,), (above,) = joint.margins(TAIL)
    assert (4 - below, 4 + above) == pytest.approx((expected.low, expected.high))


def test_the_side_of_the_long_tail_is_lengthened_as_johnson_has_it():
    sample = np.array([0.0, 0.1, 0.2, 0.4, 0.5, 0.9, 1.5, 4.0])
    count, quantile = len(sample), stats.t.ppf(1 - TAIL, 7)
    error = sample.std(ddof=1) / np.sqrt(count)
    skewness = stats.kstat(sample, 3) / stats.kstat(sample, 2) ** 1.5
    longer = quantile + skewness / np.sqrt(count) * (quantile**2 / 3 + 1 / 6)
    for values, expected in ((sample, (quantile, longer)), (-sample, (longer, quantile))):
        margins = np.ravel(joint_of(values).margins(TAIL))
        assert margins == pytest.approx(np.array(expected) * error)


def test_skewness_is_that_of_all_quantities_together():
    random = np.random.default_rng(0)
    samples = random.exponential(size=(3, 9))
    alone = [joint_of(sample).skewness[0] for sample in samples]
    assert joint_of(*samples).skewness == pytest.approx(np.full(3, np.mean(alone)))
    assert joint_of([1.0, 5.0]).skewness == pytest.approx([0.0])


def test_degrees_of_freedom_are_welchs():
    left, right = [3.0, 5.0, 4.0, 8.0, 5.5], [2.0, 9.0, 1.0]
    difference = joint_of(left, right).linear(np.array([[1.0, -1.0]]))
    welch = stats.ttest_ind(left, right, equal_var=False)
    assert difference.freedom[0] == pytest.approx(welch.df)
    assert difference.values[0] / difference.standard_errors[0] == pytest.approx(welch.statistic)


def test_documents_of_unequal_size_leave_fewer_degrees_of_freedom():
    assert ratio_freedom(np.full(8, 50.0)) == pytest.approx(7)
    # Two of ten documents hold half of the tokens: as exact as 32² / (8·2² + 2·8²) = 6.4 documents of one size.
    assert ratio_freedom(np.array([2.0] * 8 + [8.0] * 2)) == pytest.approx(0.9 * 6.4)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(3, 12))
def test_the_jackknife_of_a_mean_is_its_textbook_variance(seed, count):
    sample = np.random.default_rng(seed).normal(size=count)
    influence = ratio_influence(sample, np.ones(count))
    assert (influence**2).sum() == pytest.approx(sample.var(ddof=1) / count)
    # A document above the mean raises it.
    assert np.sign(influence) == pytest.approx(np.sign(sample - sample.mean()))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_noise_has_the_covariance_that_parts_add_up_to(seed):
    random = np.random.default_rng(seed)
    shared = Part(np.arange(3), random.normal(size=(6, 3)), np.full(3, 5.0))
    alone = Part(np.array([1]), random.normal(size=(4, 1)), np.array([3.0]))
    joint = JointEstimates.of(np.zeros(3), [shared, alone])
    expected = shared.influence.T @ shared.influence
    expected[1, 1] += alone.influence[:, 0] @ alone.influence[:, 0]
    assert joint.covariance == pytest.approx(expected)
    # Of 4,000 draws the standard error of a covariance is below 2.3 % of the largest variance: five of them.
    noise = joint.noise(4000, 0)
    assert np.cov(noise.T) == pytest.approx(expected, abs=0.12 * expected.diagonal().max())
    order = np.array([2, 0, 1])
    assert joint.reordered(order).linear(np.eye(3)[np.argsort(order)]).covariance == pytest.approx(expected)


def test_p_is_students_where_nothing_is_skewed():
    sample = [1.0, 2.0, 4.0, 6.0, 7.0]
    assert joint_of(sample).p_values()[0] == pytest.approx(stats.ttest_1samp(sample, 0).pvalue)
    assert joint_of([-2.0, -1.0, 0.0, 1.0, 2.0]).p_values()[0] == 1.0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), shift=st.floats(-1, 1))
def test_p_is_the_level_at_which_the_interval_ends_at_zero(seed, shift):
    joint = joint_of(*(np.random.default_rng(seed).exponential(size=(3, 7)) + shift - 1))
    p = joint.p_values()
    for place, value in enumerate(joint.values):
        if p[place] < 1:
            below, above = joint.margins(p[place] / 2)
            assert (below if value > 0 else above)[place] == pytest.approx(abs(value))
