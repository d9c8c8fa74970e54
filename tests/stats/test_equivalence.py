"""Against R's TOSTER, and against the interval that decides the same."""

import pytest

from laaciq.stats.equivalence import paired_equivalence, two_sample_equivalence
from tests.stats.sleep import FIRST, SECOND


def test_equivalence_of_sleep_is_that_of_r():
    """R's `TOSTER::t_TOST(extra ~ group, data = sleep, eqb = 0.5)`: Welch's t, p = 0.89 against the lower and 0.012 against the upper bound."""
    result = two_sample_equivalence(FIRST, SECOND, 0.5)
    assert (result.p_above_lower, result.p_below_upper) == pytest.approx((0.89, 0.012), abs=5e-3)
    assert result.p == result.p_above_lower


def test_equivalence_holds_exactly_where_the_interval_lies_within_the_margin():
    differences = FIRST - SECOND + 1.5
    for margin in (0.5, 0.7, 0.8, 1.0, 2.0):
        result = paired_equivalence(differences, margin)
        assert (result.p < 0.05) == (-margin < result.low and result.high < margin)
    with pytest.raises(ValueError, match="above zero"):
        paired_equivalence(differences, 0.0)
    with pytest.raises(ValueError, match="constant"):
        paired_equivalence([1.0, 1.0], 0.5)
