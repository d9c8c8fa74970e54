"""Against published results of R, and against simulation."""

import numpy as np
import pytest
from scipy import stats

from laaciq.stats.power import (
    correlation_power,
    detectable_correlation,
    detectable_difference,
    difference_power,
    pairs_needed,
    simulated_correlation_power,
    simulated_power,
)


def test_powers_are_those_of_r():
    """power.t.test(n = 20, delta = 1, sd = 1): 0.8689528, without the far tail; pwr.r.test(r = 0.3, n = 50): 0.5715558."""
    assert difference_power(1.0, 20, 20) == pytest.approx(0.8689528, abs=5e-7)
    assert correlation_power(0.3, 50) == pytest.approx(0.5715558, abs=5e-8)
    # power.t.test(power = .90, delta = 1): n = 22.02110.
    assert difference_power(1.0, 22, 22) < 0.9 < difference_power(1.0, 23, 23)


def test_the_closed_form_is_near_simulation():
    """At r = 0.7 and n = 12 the seeds give 0.85; plain Fisher's z gives 0.74."""
    simulated = simulated_correlation_power(0.7, 12)
    assert simulated.low < 0.78 < simulated.high
    assert correlation_power(0.7, 12) == pytest.approx(simulated.value, abs=0.02)
    assert stats.norm.cdf(np.arctanh(0.7) * 3 - stats.norm.ppf(0.975)) == pytest.approx(0.74, abs=0.005)


def test_what_is_detectable_has_the_power_asked_for():
    for n in (8, 12, 32):
        assert correlation_power(detectable_correlation(n), n) == pytest.approx(0.8)
    assert difference_power(detectable_difference(7, 25), 7, 25) == pytest.approx(0.8)
    needed = pairs_needed(-0.5, 0.9)
    assert correlation_power(-0.5, needed) >= 0.9 > correlation_power(-0.5, needed - 1)


def test_the_power_of_any_test_is_simulated():
    """Of a z test of one value 2 standard errors away: P(|z| > 1.96) = 0.516. Without an effect it is the level."""
    power = simulated_power(lambda random: float(2 * stats.norm.sf(abs(random.normal(2)))), simulations=2000)
    assert power.low < 0.516 < power.high
    assert difference_power(0.0, 5, 5) == pytest.approx(0.05)
    assert correlation_power(0.0, 20) == pytest.approx(0.05, abs=0.005)


def test_what_has_no_power_is_refused():
    with pytest.raises(ValueError, match="3 pairs are too few"):
        correlation_power(0.5, 3)
    with pytest.raises(ValueError, match="not between -1 and 1"):
        correlation_power(1.0, 10)
    with pytest.raises(ValueError, match="no number of pairs"):
        pairs_needed(0.0)
    with pytest.raises(ValueError, match="a power of 1"):
        detectable_correlation(10, 1.0)
