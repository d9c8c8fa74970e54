"""Against R, and against simulation."""

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
    """power.t.test(n = 20, delta = 1, sd = 1, strict = TRUE), pwr.t2n.test(n1 = 7, n2 = 25, d = 1), pwr.r.test(r = 0.3, n = 50)."""
    assert difference_power(1.0, 20, 20) == pytest.approx(0.868953027725, abs=1e-10)
    assert difference_power(1.0, 7, 25) == pytest.approx(0.619169352070, abs=1e-10)
    assert correlation_power(0.3, 50) == pytest.approx(0.571555841860, abs=1e-10)


def test_what_is_detectable_is_that_of_r():
    """power.t.test(n = 20, power = 0.8, strict = TRUE, tol = 1e-12)
    uniroot(function(d) pwr.t2n.test(n1 = 7, n2 = 25, d = d)$power - 0.8, c(0.1, 9), tol = 1e-13)
    uniroot(function(r) pwr.r.test(n = 50, r = r)$power - 0.8, c(0.1, 0.9), tol = 1e-13); pwr alone stops at 1e-5."""
    assert detectable_difference(20, 20) == pytest.approx(0.909129032682, abs=1e-9)
    assert detectable_difference(7, 25) == pytest.approx(1.238107288, abs=1e-9)
    assert detectable_correlation(50) == pytest.approx(0.3843250613, abs=1e-9)
    # power.t.test(power = 0.9, delta = 1, strict = TRUE): n = 22.02; pwr.r.test(r = 0.5, power = 0.9): n = 37.04.
    assert difference_power(1.0, 22, 22) < 0.9 < difference_power(1.0, 23, 23)
    assert pairs_needed(-0.5, 0.9) == 38


def test_the_closed_form_is_near_simulation():
    """At r = 0.7 and n = 12 the exact power is 0.7784335; plain Fisher's z gives 0.7395431. R: t <- qt(0.975, 10)
    integrate(function(w) { s <- 0.7 / sqrt(1 - 0.7^2) * sqrt(w); (1 - pt(t, 10, s) + pt(-t, 10, s)) * dchisq(w, 11) }, 0, Inf)
    pnorm(atanh(0.7) * 3 - qnorm(0.975))"""
    simulated = simulated_correlation_power(0.7, 12)
    assert simulated.low < 0.7784335 < simulated.high
    assert correlation_power(0.7, 12) == pytest.approx(0.7784335, abs=0.012)
    assert stats.norm.cdf(np.arctanh(0.7) * 3 - stats.norm.ppf(0.975)) == pytest.approx(0.7395431, abs=5e-8)


def test_what_is_detectable_has_the_power_asked_for():
    for n in (8, 12, 32):
        assert correlation_power(detectable_correlation(n), n) == pytest.approx(0.8)
    assert difference_power(detectable_difference(7, 25), 7, 25) == pytest.approx(0.8)
    needed = pairs_needed(-0.5, 0.9)
    assert correlation_power(-0.5, needed) >= 0.9 > correlation_power(-0.5, needed - 1)


def test_the_power_of_any_test_is_simulated():
    """Of a z test of one value 2 standard errors away: P(|z| > 1.96) = 0.516. Without an effect it is the level.
    R: pnorm(2 - qnorm(0.975)) + pnorm(-2 - qnorm(0.975)), pwr.r.test(r = 0, n = 20)."""
    power = simulated_power(lambda random: float(2 * stats.norm.sf(abs(random.normal(2)))), simulations=2000)
    assert power.low < 0.5160053 < power.high
    assert difference_power(0.0, 5, 5) == pytest.approx(0.05)
    # The closed form is not the level itself.
    assert correlation_power(0.0, 20) == pytest.approx(0.0492594185, abs=1e-10)


def test_what_has_no_power_is_refused():
    with pytest.raises(ValueError, match="3 pairs are too few"):
        correlation_power(0.5, 3)
    with pytest.raises(ValueError, match="not between -1 and 1"):
        correlation_power(1.0, 10)
    with pytest.raises(ValueError, match="no number of pairs"):
        pairs_needed(0.0)
    with pytest.raises(ValueError, match="a power of 1"):
        detectable_correlation(10, 1.0)
