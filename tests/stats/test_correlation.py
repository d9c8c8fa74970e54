"""Against the published figures, against R, and on what can be known by hand."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from laaciq.stats.correlation import partial, pearson, permutation_p, spearman
from tests.published import PUBLISHED
from tests.stats.stackloss import ACID_CONCENTRATION, AIR_FLOW, LOSS, WATER_TEMPERATURE

# R's help page of cor.test (Hollander & Wolfe 1973): lightness and quality of canned tuna.
LIGHTNESS = [44.4, 45.9, 41.9, 53.3, 44.7, 44.1, 50.7, 45.2, 60.1]
QUALITY = [2.6, 3.1, 2.5, 5.0, 3.6, 4.0, 5.2, 2.8, 3.8]
COLUMN = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=12)


@pytest.fixture(scope="module")
def bloom():
    rows = PUBLISHED["bloom_560m"]["languages"].values()
    return {name: [row[name] for row in rows] for name in ("outlier_fraction", "effective_kurtosis", "D")}


def test_the_published_correlation_follows_from_its_columns(bloom):
    correlation, claimed = pearson(bloom["outlier_fraction"], bloom["D"]), PUBLISHED["published"]
    assert correlation.n == 14
    assert round(correlation.r, 3) == claimed["r_outlier_D"] == -0.834
    assert round(correlation.p, 4) == claimed["p"] == 0.0002
    # R's boot gives [-0.9298, -0.6378] from 100,000 draws; how many the published [-0.93, -0.65] took is not known.
    assert [correlation.low, correlation.high] == pytest.approx(claimed["bootstrap_ci95"], abs=0.02)
    assert permutation_p(bloom["outlier_fraction"], bloom["D"], draws=10_000, seed=0) <= 0.001


def test_the_published_correlation_with_effective_kurtosis_does_not(bloom):
    """-0.838 was published; the published columns give -0.766."""
    correlation = pearson(bloom["effective_kurtosis"], bloom["D"])
    assert PUBLISHED["published"]["r_keff_D"] == -0.838
    assert round(correlation.r, 3) == -0.766
    # R: cor.test(effective_kurtosis, D).
    assert (correlation.r, correlation.p) == pytest.approx((-0.7657692063, 0.001408605260), abs=1e-10)


def test_by_hand():
    """Ranks 1 to 5, two neighbouring swaps: r = 1 − 6·4/(5·24) = 0.8, t = 0.8·√(3/0.36) = 2.309 on 3 degrees of freedom.
    R: cor.test(1:5, c(2, 1, 4, 3, 5))$p.value."""
    correlation = pearson([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    assert correlation.r == pytest.approx(0.8)
    assert correlation.p == pytest.approx(0.104088038662, abs=1e-10)


def test_the_interval_and_the_permutations_of_few_pairs_are_those_of_r():
    """Seven tuna, all 7⁷ resamples: i <- as.matrix(expand.grid(rep(list(1:7), 7))); r <- apply(i, 1, function(k) cor(x[k], y[k]))
    quantile(r, c(0.025, 0.975), na.rm = TRUE)

    All 7! pairings: perms <- function(v) if (length(v) < 2) v else
      do.call(rbind, lapply(seq_along(v), function(k) cbind(v[k], perms(v[-k]))))
    mean(abs(apply(perms(y), 1, function(z) cor(x, z))) >= abs(cor(x, y)) - 1e-12)"""
    x, y = LIGHTNESS[:7], QUALITY[:7]
    correlation = pearson(x, y, draws=100_000)
    assert (correlation.r, correlation.p) == pytest.approx((0.8639884152, 0.01216165583), abs=1e-10)
    # Resamples are few and far apart at the lower end: by seeds its standard error is 0.01.
    assert correlation.low == pytest.approx(0.2381410, abs=0.03)
    assert correlation.high == pytest.approx(0.9779344, abs=0.001)
    # Of 10,000 pairings the standard error is 0.00125.
    assert permutation_p(x, y) == pytest.approx(80 / 5040, abs=0.004)


def test_a_straight_line():
    correlation = pearson([1, 2, 3, 4], [-2, -4, -6, -8])
    assert (correlation.r, correlation.p) == pytest.approx((-1, 0), abs=1e-7)
    assert (correlation.low, correlation.high) == pytest.approx((-1, -1))


@settings(max_examples=50, deadline=None)
@given(x=COLUMN, seed=st.integers(0, 1000), scale=st.floats(0.1, 10), shift=st.floats(-100, 100))
def test_scale_and_shift_do_not_matter_and_order_of_columns_neither(x, seed, scale, shift):
    assume(np.ptp(x) > 1)
    y = np.random.default_rng(seed).normal(size=len(x))
    correlation = pearson(x, y, draws=50)
    assert -1 <= correlation.low <= correlation.high <= 1
    assert pearson(y, x, draws=50).r == pytest.approx(correlation.r, abs=1e-9)
    assert pearson(scale * np.array(x) + shift, -y, draws=50).r == pytest.approx(-correlation.r, abs=1e-6)


def test_intervals_cover_the_truth():
    """At 40 pairs of a normal with ρ = 0.5; 95 % are meant, the percentile interval is known to fall somewhat short, 300 sets leave ±2.5 %."""
    random = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        x, y = random.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=40).T
        correlation = pearson(x, y, draws=400)
        covered.append(correlation.low <= 0.5 <= correlation.high)
    assert 0.89 <= np.mean(covered) <= 0.98


def test_p_is_uniform_when_there_is_nothing_to_find():
    """5 % are meant; 400 sets leave ±2.2 % for chance."""
    random = np.random.default_rng(1)
    sets = random.normal(size=(400, 2, 10))
    assert np.mean([pearson(x, y, draws=10).p < 0.05 for x, y in sets]) == pytest.approx(0.05, abs=0.03)
    assert np.mean([permutation_p(x, y, draws=400) < 0.05 for x, y in sets]) == pytest.approx(0.05, abs=0.03)


def test_permutations_of_few_pairs_are_counted_rightly():
    """Of the 6 pairings of (1, 2, 4) with itself one alone has r = 1, and none r = −1: p = 1/6. 20,000 draws leave ±0.008."""
    assert permutation_p([1, 2, 4], [1, 2, 4], draws=20_000, seed=0) == pytest.approx(1 / 6, abs=0.01)


def test_the_seed_decides():
    x, y = np.random.default_rng(2).normal(size=(2, 12))
    assert pearson(x, y, seed=1) == pearson(x, y, seed=1) != pearson(x, y, seed=2)
    assert permutation_p(x, y, draws=500, seed=1) == permutation_p(x, y, draws=500, seed=1)


@pytest.mark.parametrize(
    "x, y, message",
    [
        ([1, 2], [1, 2], "2 pairs are too few"),
        ([1, 2, 3], [1, 2], "cannot be paired"),
        ([1, 2, 3], [0.1, 0.1, 0.1], "second column is constant at 0.1"),
        ([1, 2, float("nan")], [1, 2, 3], "first column holds NaN"),
    ],
)
@pytest.mark.parametrize("function", [pearson, permutation_p])
def test_what_has_no_correlation_is_refused(function, x, y, message):
    with pytest.raises(ValueError, match=message):
        function(x, y)


def test_spearman_is_pearson_of_ranks_and_sees_what_is_monotone():
    x, y = np.random.default_rng(3).normal(size=(2, 15))
    assert spearman(x, y).r == pytest.approx(pearson(stats.rankdata(x), stats.rankdata(y), draws=10).r)
    assert spearman(x, np.exp(3 * x)).r == 1


def test_spearman_of_tuna_is_that_of_r():
    """cor.test(x, y, method = "spearman", exact = FALSE): rho, p; from all pairings p is 0.0968.
    tanh(atanh(0.6) + c(-1, 1) * qnorm(0.975) * sqrt((1 + 0.6^2 / 2) / 6))"""
    result = spearman(LIGHTNESS, QUALITY)
    assert (result.r, result.p) == pytest.approx((0.6, 0.08762282904), abs=1e-10)
    assert (result.low, result.high) == pytest.approx((-0.1742440698, 0.9157978790), abs=1e-10)


def test_a_partial_correlation_of_stackloss_is_that_of_r():
    """t <- summary(lm(stack.loss ~ Acid.Conc. + Air.Flow + Water.Temp, stackloss))$coef["Acid.Conc.", ], with its p
    psych::partial.r(stackloss, c(4, 3), c(1, 2)); psych::r.con(-0.2297476803315, 21 - 2)"""
    result = partial(ACID_CONCENTRATION, LOSS, np.stack([AIR_FLOW, WATER_TEMPERATURE], axis=1))
    assert (result.r, result.p) == pytest.approx((-0.2297476803, 0.3440460967), abs=1e-10)
    assert (result.low, result.high) == pytest.approx((-0.6193279128, 0.2506140688), abs=1e-10)


def test_a_partial_correlation_is_that_of_the_closed_form():
    """r_xy.z = (r_xy − r_xz r_yz) / √((1 − r_xz²)(1 − r_yz²))."""
    z, x, y = np.random.default_rng(4).normal(size=(3, 20))
    x, y = x + z, y - z
    r = np.corrcoef([x, y, z])
    expected = (r[0, 1] - r[0, 2] * r[1, 2]) / np.sqrt((1 - r[0, 2] ** 2) * (1 - r[1, 2] ** 2))
    result = partial(x, y, z)
    assert result.r == pytest.approx(expected)
    # Of t = r √(n − 3)/√(1 − r²) on n − 3 degrees of freedom.
    t = expected * np.sqrt(17 / (1 - expected**2))
    assert result.p == pytest.approx(2 * stats.t.sf(abs(t), 17))
    assert pearson(x, y, draws=10).r < result.r - 0.2
    with pytest.raises(ValueError, match="determine the first column"):
        partial(z, y, z)
    with pytest.raises(ValueError, match="too few for 2 controls"):
        partial(x[:5], y[:5], np.eye(5)[:, :2])


def test_intervals_of_ranks_and_residuals_cover():
    """400 sets of 30 pairs with ρ = 0.5, rank correlation 6/π asin(ρ/2), each moved by a third column; ±3.3 % are three standard errors."""
    random, covered = np.random.default_rng(5), np.zeros(2)
    for _ in range(400):
        x, y = random.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=30).T
        z = random.normal(size=30)
        ranks, held = spearman(x, y), partial(x + z, y + z, z)
        covered += [ranks.low <= 6 / np.pi * np.arcsin(0.25) <= ranks.high, held.low <= 0.5 <= held.high]
    assert covered / 400 == pytest.approx([0.95, 0.95], abs=0.033)
