"""Against R's lme4 and psych, closed forms and simulation."""

import numpy as np
import pytest

from laaciq.stats.mixed_effects import (
    effective_languages,
    effective_pairs,
    intraclass,
    random_intercepts,
    standard_deviation,
)

# R's `lme4::Dyestuff` (Davies 1947): yield of dyestuff from six batches.
DYESTUFF = [
    *(1545, 1440, 1440, 1520, 1580), *(1540, 1555, 1490, 1560, 1495), *(1595, 1550, 1605, 1510, 1560),
    *(1445, 1440, 1595, 1465, 1545), *(1595, 1630, 1515, 1635, 1625), *(1520, 1455, 1450, 1480, 1445),
]  # fmt: skip
BATCH = np.repeat(list("ABCDEF"), 5)


def test_dyestuff_is_that_of_lme4():
    """m <- lmerTest::lmer(Yield ~ 1 + (1 | Batch), Dyestuff); REMLcrit(m); VarCorr(m); summary(m), with 5 degrees of freedom.
    1527.5 + c(-1, 1) * qt(0.975, 5) * 19.3834122. A flat maximum leaves one in 10⁶ of a variance."""
    model = random_intercepts(DYESTUFF, BATCH)
    assert model.deviance == pytest.approx(319.654276842, abs=1e-8)
    assert (model.between_variance, model.residual_variance) == pytest.approx((1764.05, 2451.25), rel=1e-6)
    (intercept,) = model.coefficients
    assert (intercept.value, intercept.standard_error) == pytest.approx((1527.5, 19.3834122), rel=1e-6)
    assert (intercept.low, intercept.high) == pytest.approx((1477.6733527, 1577.3266473), rel=1e-6)
    assert intercept.p == pytest.approx(6.234476e-09, rel=1e-5)
    assert (model.groups, model.freedom) == (6, 5)


def test_groups_of_unequal_size_with_a_column_are_those_of_lme4():
    """d <- cbind(Dyestuff, run = rep(1:5, 6))[-c(1, 2, 8, 30), ]
    lmer(Yield ~ run + (1 | Batch), d, control = lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-12)))"""
    kept = np.delete(np.arange(30), [0, 1, 7, 29])
    model = random_intercepts(np.array(DYESTUFF)[kept], BATCH[kept], np.tile(np.arange(1, 6), 6)[kept])
    assert model.deviance == pytest.approx(270.1849726692, abs=1e-8)
    assert (model.between_variance, model.residual_variance) == pytest.approx((1535.62478, 2590.97304), rel=1e-6)
    assert [c.value for c in model.coefficients] == pytest.approx([1520.73037829, 3.83062941], rel=1e-7)
    assert [c.standard_error for c in model.coefficients] == pytest.approx([29.3629826, 7.3208379], rel=1e-7)


def test_of_a_balanced_table_the_slope_within_groups_is_that_of_least_squares():
    """A column with the same values in every group: β̂ is the slope of deviations from group means, whatever the variances."""
    random = np.random.default_rng(0)
    x, groups = np.tile([-1.0, 0.0, 1.0, 3.0], 6), np.repeat(np.arange(6), 4)
    y = 2 * x + np.repeat(random.normal(size=6), 4) + 0.3 * random.normal(size=24)
    model = random_intercepts(y, groups, x)
    within = y - np.repeat(y.reshape(6, 4).mean(1), 4)
    centred = x - x.mean()
    assert model.coefficients[1].value == pytest.approx(within @ centred / (centred @ centred))
    assert model.intraclass > 0.5


def test_without_families_that_differ_it_is_least_squares():
    x = np.arange(8.0)
    y = 1 + 2 * x + np.array([1, -1, 1, -1, -1, 1, -1, 1.0])
    model = random_intercepts(y, np.repeat([0, 1, 2, 3], 2), x)
    slope = np.polyfit(x, y, 1)
    assert model.between_variance == 0
    assert [c.value for c in model.coefficients] == pytest.approx(slope[::-1])


def test_of_a_balanced_table_the_analysis_of_variance_gives_the_same_share():
    """psych::ICC(matrix(Dyestuff$Yield, 6, byrow = TRUE), lmer = FALSE): ICC1, F = 4.598 on 5 and 24 degrees of freedom."""
    result = intraclass(DYESTUFF, BATCH)
    share = result.share
    assert (share.value, share.low, share.high) == pytest.approx((0.4184874149, 0.0838360507, 0.8478768155), abs=1e-10)
    assert result.p == pytest.approx(0.004397531268, abs=1e-12)
    assert share.value == pytest.approx(random_intercepts(DYESTUFF, BATCH).intraclass, rel=1e-6)


def test_intervals_of_the_share_between_families_cover():
    """300 sets of 6 families of 5 with ρ = 0.5: exact, and three Monte Carlo errors are 3.8 %."""
    random, covered = np.random.default_rng(3), 0
    for _ in range(300):
        y = np.repeat(random.normal(size=6), 5) + random.normal(size=30)
        covered += (share := intraclass(y, BATCH).share).low <= 0.5 <= share.high
    assert covered / 300 == pytest.approx(0.95, abs=0.038)


def test_relatives_count_as_less_than_one():
    families = ["a"] * 6 + ["b"] * 3 + ["c"]
    assert effective_languages(families, 0.0) == pytest.approx(10)
    # 100/(36 + 9 + 1): a plain mean is mostly that of the largest family.
    assert effective_languages(families, 1.0) == pytest.approx(100 / 46)
    assert effective_languages(families[3:9], 1.0) == pytest.approx(2)
    assert effective_pairs(families, 0.7, 0.0) == pytest.approx(10)
    # Within a family both columns are constant: 1 + 100/(36 + 9 + 1).
    assert effective_pairs(families, 1.0, 1.0) == pytest.approx(1 + 100 / 46)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        effective_languages(families, 1.2)


# One family of 15, and others of 1 to 4.
UNLIKE = np.repeat(np.arange(8), [15, 4, 3, 3, 2, 1, 1, 1])


def related(random, families, intraclass, sets=4000):
    """Standard normal rows whose columns are related within families."""
    shared, alone = random.normal(size=(sets, families.max() + 1)), random.normal(size=(sets, len(families)))
    return np.sqrt(intraclass) * shared[:, families] + np.sqrt(1 - intraclass) * alone


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_effective_languages_give_the_variance_of_a_plain_mean(share):
    """Var ȳ = σ²/n_eff and E s² as `standard_deviation` takes it, exactly. The tolerance is three and a half standard errors of a
    variance of 4,000 means, 2.2 % each; those of the mean of s² are smaller."""
    values = related(np.random.default_rng(4), UNLIKE, share)
    independent = effective_languages(UNLIKE, share)
    assert values.mean(1).var() == pytest.approx(1 / independent, rel=0.08)
    assert np.mean([standard_deviation(row, independent) ** 2 for row in values]) == pytest.approx(1, rel=0.08)


def test_the_deviation_of_unrelated_languages_is_the_usual_one():
    assert standard_deviation([1.0, 2.0, 4.0], 3) == pytest.approx(np.std([1.0, 2.0, 4.0], ddof=1))


def test_where_families_differ_in_size_effective_pairs_are_conservative():
    """r varies less than the formula says, which takes centred columns for uncentred ones; by less than half."""
    random = np.random.default_rng(6)
    x, y = related(random, UNLIKE, 0.6), related(random, UNLIKE, 0.6)
    variance = np.var([np.corrcoef(*pair)[0, 1] for pair in zip(x, y, strict=True)])
    assert 0.5 < variance * (effective_pairs(UNLIKE, 0.6, 0.6) - 1) < 1


def test_effective_pairs_give_the_variance_of_r():
    """Columns that are independent of each other, and both related within five families of six: Var r = 1/(n_eff − 1). Of 4,000 sets the
    standard error of a variance is 2.2 %; Clifford's formula is a first-order one."""
    random, families = np.random.default_rng(0), np.repeat(np.arange(5), 6)
    shared, alone = random.normal(size=(4000, 2, 5)), random.normal(size=(4000, 2, 30))
    x, y = np.moveaxis(np.sqrt(0.5) * (shared[:, :, families] + alone), 1, 0)
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    r = (x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1))
    assert r.var() == pytest.approx(1 / (effective_pairs(families, 0.5, 0.5) - 1), rel=0.25)
    assert r.var() > 1.4 / 29


def test_groups_that_give_no_random_effect_are_refused():
    with pytest.raises(ValueError, match="at least two groups"):
        random_intercepts([1.0, 2.0, 3.0], ["a", "a", "a"])
    with pytest.raises(ValueError, match="do not determine"):
        random_intercepts([1.0, 2.0, 3.0], ["a", "a", "b"], np.ones((3, 1)))
