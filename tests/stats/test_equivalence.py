"""Against R's one-sided t tests, and against the interval that decides the same."""

import pytest

from laaciq.stats.equivalence import paired_equivalence, two_sample_equivalence
from tests.stats.sleep import FIRST, SECOND


def test_equivalence_of_sleep_is_that_of_r():
    """t.test(first, second, mu = -0.5, alternative = "greater"), mu = 0.5 and "less", conf.level = 0.9 for the interval.
    The same of t.test(first - second + 1.5), with mu = -0.8 and 0.8."""
    result = two_sample_equivalence(FIRST, SECOND, 0.5)
    assert (result.p_above_lower, result.p_below_upper) == pytest.approx((0.8901099613, 0.0124513277), abs=1e-10)
    assert (result.low, result.high) == pytest.approx((-3.0533814973, -0.1066185027), abs=1e-10)
    assert result.p == result.p_above_lower
    paired = paired_equivalence(FIRST - SECOND + 1.5, 0.8)
    assert (paired.p_above_lower, paired.p_below_upper) == pytest.approx((0.0485906517, 0.0249880018), abs=1e-10)
    assert (paired.low, paired.high) == pytest.approx((-0.7930052670, 0.6330052670), abs=1e-10)


def test_equivalence_holds_exactly_where_the_interval_lies_within_the_margin():
    differences = FIRST - SECOND + 1.5
    for margin in (0.5, 0.7, 0.8, 1.0, 2.0):
        result = paired_equivalence(differences, margin)
        assert (result.p < 0.05) == (-margin < result.low and result.high < margin)
    with pytest.raises(ValueError, match="above zero"):
        paired_equivalence(differences, 0.0)
    with pytest.raises(ValueError, match="constant"):
        paired_equivalence([1.0, 1.0], 0.5)
