"""Where one quantity stands far apart, nothing is left of the choice between many, and the textbook's intervals return."""

import numpy as np
import pytest
from scipy import stats

from laaciq.stats.estimate import TAIL
from laaciq.stats.extremes import maximum_estimate, range_estimate, slack
from laaciq.stats.joint import JointEstimates, Part
from laaciq.stats.ratio import ratio_influence

# The 2.5 % point of so many draws has a standard error of 1.3 %: tolerances are three of them.
DRAWS, TOLERANCE = 20_000, 0.04


def joint_of(means, *, documents=8):
    """Independent quantities that vary alike and without skewness."""
    shape = stats.norm.ppf((np.arange(documents) + 0.5) / documents)
    parts = [
        Part(np.array([place]), ratio_influence(shape, np.ones(documents))[:, None], np.array([documents - 1.0]))
        for place in range(len(means))
    ]
    return JointEstimates.of(np.array(means, dtype=float), parts)


def test_the_maximum_of_one_is_students():
    joint = joint_of([3.0])
    estimate = maximum_estimate(joint, joint.noise(DRAWS, 0))
    margin = stats.t.ppf(1 - TAIL, 7) * joint.standard_errors[0]
    assert (estimate.value, estimate.high) == pytest.approx((3.0, 3.0 + margin))
    assert estimate.low == pytest.approx(3.0 - margin, abs=TOLERANCE * margin)


def test_the_maximum_far_above_the_others_is_students():
    joint = joint_of([30.0, 0.0, 0.1, -0.2, 0.3])
    estimate = maximum_estimate(joint, joint.noise(DRAWS, 0))
    margin = stats.t.ppf(1 - TAIL, 7) * joint.standard_errors[0]
    assert estimate.high == pytest.approx(30.0 + margin)
    assert estimate.low == pytest.approx(30.0 - margin, abs=TOLERANCE * margin)


def test_of_equal_quantities_the_maximum_is_lower_than_the_largest_value():
    """Of 36 equal ones the largest exceeds the truth by 2.1 standard errors on average."""
    joint = joint_of(np.linspace(-0.01, 0.01, 36), documents=60)
    estimate = maximum_estimate(joint, joint.noise(DRAWS, 0))
    assert estimate.value - estimate.low > 2.9 * joint.standard_errors[0]
    assert estimate.high - estimate.value < 2.1 * joint.standard_errors[0]


def test_the_range_of_two_far_apart_is_a_difference_of_two():
    """θ is small, so that D is nearly θ. The lower end has 14 degrees of freedom, and so has Welch's."""
    joint = joint_of([0.0, 30.0]).scaled(np.full(2, 1e-4), np.array([0.0, 3e-3]))
    estimate = range_estimate(joint, joint.noise(DRAWS, 0)).estimate
    error = np.sqrt(2) * joint.standard_errors[0]
    assert estimate.value == pytest.approx(3e-3, rel=0.01)
    assert estimate.value - estimate.low == pytest.approx(stats.t.ppf(1 - TAIL, 14) * error, rel=0.1)
    assert estimate.high - estimate.value == pytest.approx(stats.t.ppf(1 - TAIL, 7) * error, rel=0.1)


def test_what_is_near_the_maximum_may_be_it():
    joint = joint_of([5.0, 4.9, 0.0])
    noise, errors = joint.noise(DRAWS, 0), joint.standard_errors
    shortfall = slack(joint.values, noise, errors, errors)
    assert shortfall[:2] == pytest.approx([0.0, 0.0])
    assert -5.0 < shortfall[2] < -3.0
