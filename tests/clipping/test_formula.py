import numpy as np
import pytest
from scipy import stats

from laaciq.clipping.distributions import GeneralisedGaussian, StudentT
from laaciq.clipping.formula import FAMILY, FITTED, PUBLISHED, clip_ratio, error_table
from laaciq.clipping.noise_model import model_mse
from laaciq.clipping.optimum import optimal_threshold
from laaciq.errors import BadOption

FORMULAS = pytest.mark.parametrize("formula", [PUBLISHED, FITTED])


def test_the_published_values():
    assert float(clip_ratio(0.0, 4, PUBLISHED)) == 2.5
    assert float(clip_ratio(np.e - 1, 4, PUBLISHED)) == pytest.approx(2.8)


@pytest.mark.parametrize("bits", range(2, 9))
def test_the_fitted_values_are_those_of_the_fit(bits):
    optima = [optimal_threshold(member, bits).alpha for member in FAMILY]
    line = stats.linregress([np.log1p(member.kurtosis) for member in FAMILY], optima)
    # Four decimals are kept.
    assert FITTED.at(bits) == pytest.approx((line.intercept, line.slope), abs=5e-5)


@FORMULAS
def test_light_tails_are_clamped(formula):
    """Uniform weights have κ = −1.2, where the logarithm has no value."""
    low = formula.least_kurtosis
    assert clip_ratio([-1.2, -1.0, low], 4, formula) == pytest.approx(np.full(3, clip_ratio(low, 4, formula)))


def test_the_published_formula_holds_about_gaussian_tails_only():
    for kurtosis in np.linspace(-0.8, 0.5, 14):
        assert excess(GeneralisedGaussian.of_kurtosis(kurtosis), PUBLISHED) < 0.015
    assert excess(GeneralisedGaussian.of_kurtosis(22.2), PUBLISHED) > 0.3


def excess(member, formula):
    alpha = clip_ratio(member.kurtosis, 4, formula)
    return float(model_mse(member, alpha, 4)) / optimal_threshold(member, 4).mse - 1


def test_one_kurtosis_has_many_thresholds():
    """So that no function of κ alone is exact: at κ = 24 two families differ by a quarter."""
    heavy, heavier = (
        optimal_threshold(family.of_kurtosis(24.0), 4).alpha for family in (StudentT, GeneralisedGaussian)
    )
    assert heavier / heavy > 1.25


def test_the_error_table_covers_the_family_and_bounds_the_cost():
    rows = error_table()
    assert len(rows) == 7 * len(FAMILY)
    assert all(row.excess_mse >= 0 for row in rows)
    for bits in range(2, 7):
        assert max(row.excess_mse for row in rows if row.bits == bits) < 0.06
    published = max(row.excess_mse for row in error_table(PUBLISHED))
    assert published > 5 * max(row.excess_mse for row in error_table(FITTED, [4]))


def test_bad_options():
    with pytest.raises(BadOption, match="for 3 bits: give one of 4"):
        clip_ratio(1.0, 3, PUBLISHED)
    with pytest.raises(BadOption, match="9 bits"):
        clip_ratio(1.0, 9)
    with pytest.raises(BadOption, match="NaN"):
        clip_ratio(np.nan, 4)
