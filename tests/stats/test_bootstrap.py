"""Against R's boot on all resamples, scipy's bootstrap, closed forms, and by how often intervals cover."""

import numpy as np
import pytest
from scipy import stats

from laaciq.stats.bootstrap import bootstrap

# 4,000 draws leave 4 % of a standard error on an end of an interval (two standard errors of a 2.5 % quantile): 8 % of its length is ample.
DRAWS = 4000


def mean(rows):
    return float(rows.mean())


@pytest.mark.parametrize("kind", ["percentile", "basic", "bca"])
def test_intervals_of_rows_are_scipys(kind):
    sample = np.random.default_rng(0).exponential(size=25)
    ours = bootstrap(sample, mean, kind=kind, draws=DRAWS)
    theirs = stats.bootstrap((sample,), np.mean, method=kind, n_resamples=DRAWS).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.08 * (theirs.high - theirs.low))
    assert ours.value == pytest.approx(sample.mean())
    assert ours.units == 25


@pytest.mark.parametrize(
    "kind, expected, draws, tolerance",
    [
        # In shares of the length, three standard errors over seeds.
        ("percentile", (0.7742857, 3.1200000), 10_000, 0.03),
        ("basic", (0.6000000, 2.9457143), 10_000, 0.03),
        ("bca", (0.8685714, 3.3157143), 10_000, 0.04),
        ("studentized", (0.5783514, 4.5747898), DRAWS, 0.12),
    ],
)
def test_intervals_of_all_resamples_are_those_of_r(kind, expected, draws, tolerance):
    """x <- c(0.13, 0.42, 0.71, 1.37, 2.26, 3.19, 4.94); r <- matrix(x[as.matrix(expand.grid(rep(list(1:7), 7)))], ncol = 7)
    r <- r[apply(r, 1, var) > 1e-9, ]; b <- boot(x, function(x, i) c(mean(x[i]), var(x[i]) / 7), 2)
    b$t <- cbind(rowMeans(r), apply(r, 1, var) / 7); b$R <- nrow(r)
    boot.ci(b, type = c("perc", "basic", "bca", "stud"), L = x - mean(x))"""
    interval = bootstrap([0.13, 0.42, 0.71, 1.37, 2.26, 3.19, 4.94], mean, kind=kind, draws=draws)
    assert (interval.low, interval.high) == pytest.approx(expected, abs=tolerance * (expected[1] - expected[0]))


def test_columns_of_a_row_stay_together():
    """The difference of two columns that differ by 1 in every row has no spread."""
    left = np.random.default_rng(0).normal(size=20)
    interval = bootstrap(np.stack([left, left + 1], 1), lambda rows: float((rows[:, 1] - rows[:, 0]).mean()), draws=200)
    assert (interval.low, interval.high) == pytest.approx((1.0, 1.0))


def test_repeated_rows_are_no_evidence_unless_they_are_taken_for_independent_ones():
    """Every value four times: clusters give the standard error of 15 values, σ/√15, and rows one that is too small by half.
    The bootstrap divides by n, not n − 1."""
    values = np.random.default_rng(1).normal(size=15)
    rows, clusters = np.repeat(values, 4), np.repeat(np.arange(15), 4)
    truth = values.std() / np.sqrt(15)
    # The standard error of a standard deviation of 4,000 draws is 1.1 %.
    assert bootstrap(rows, mean, clusters=clusters, draws=DRAWS).standard_error == pytest.approx(truth, rel=0.04)
    both = bootstrap(rows, mean, clusters=clusters, within_clusters=True, draws=DRAWS)
    assert both.standard_error == pytest.approx(truth, rel=0.04)
    assert bootstrap(rows, mean, draws=DRAWS).standard_error == pytest.approx(truth / 2, rel=0.04)


def test_errors_over_clusters_of_unequal_size_are_those_of_r():
    """All draws of clusters: y <- c(0.1, 0.9, 1.3, 2.2, 2.9, 1.7, 5.1, 3.0, 4.2); g <- rep(1:5, c(1, 2, 3, 1, 2))
    i <- as.matrix(expand.grid(rep(list(1:5), 5)))
    t <- rowSums(matrix(tapply(y, g, sum)[i], ncol = 5)) / rowSums(matrix(table(g)[i], ncol = 5)); sqrt(mean((t - mean(t))^2))

    The first three clusters, and all draws within them:
    one <- do.call(rbind, lapply(split(y[1:6], g[1:6]), function(v) { n <- length(v); i <- as.matrix(expand.grid(rep(list(1:n), n)))
      data.frame(sum = rowSums(matrix(v[i], ncol = n)), n, p = 1 / 3 / n^n) }))
    k <- as.matrix(expand.grid(rep(list(1:32), 3))); at <- function(name) matrix(one[k, name], ncol = 3)
    p <- apply(at("p"), 1, prod); t <- rowSums(at("sum")) / rowSums(at("n")); sqrt(sum(p * t^2) - sum(p * t)^2)"""
    y, clusters = np.array([0.1, 0.9, 1.3, 2.2, 2.9, 1.7, 5.1, 3.0, 4.2]), np.repeat(range(5), [1, 2, 3, 1, 2])
    clustered = bootstrap(y, mean, kind="percentile", clusters=clusters, draws=DRAWS)
    # Three standard errors of a standard deviation of 4,000 draws.
    assert clustered.standard_error == pytest.approx(0.6086156, rel=0.034)
    both = bootstrap(y[:6], mean, kind="percentile", clusters=clusters[:6], within_clusters=True, draws=DRAWS)
    assert both.standard_error == pytest.approx(0.5385266, rel=0.034)


def test_the_hierarchical_variance_adds_both_levels():
    """Clusters of equal size m: Var* = var(means)/c + mean of variances within/(m·c), variances with denominators c and m."""
    random = np.random.default_rng(2)
    table = random.normal(size=(12, 1)) + random.normal(size=(12, 5))
    expected = table.mean(1).var() / 12 + table.var(axis=1).mean() / (5 * 12)
    clusters = np.repeat(np.arange(12), 5)
    interval = bootstrap(table.ravel(), mean, clusters=clusters, within_clusters=True, draws=DRAWS)
    assert interval.standard_error**2 == pytest.approx(expected, rel=0.1)


def test_intervals_cover():
    """300 samples of 40 values of an exponential distribution; 95 % are meant. Three Monte Carlo errors are 3.8 %, and skewed data cost 3 %
    (docs/statistics.md: 0.92 at 30 values)."""
    random, covered = np.random.default_rng(3), {"percentile": 0, "bca": 0}
    for _ in range(300):
        sample = random.exponential(size=40)
        for kind in covered:
            interval = bootstrap(sample, mean, kind=kind, draws=300)
            covered[kind] += interval.low <= 1 <= interval.high
    assert all(0.95 - 0.03 - 0.038 <= count / 300 <= 0.95 + 0.038 for count in covered.values())


def test_what_has_no_interval_is_refused():
    with pytest.raises(ValueError, match="at least two rows"):
        bootstrap([1.0], mean)
    with pytest.raises(ValueError, match="at least two clusters"):
        bootstrap([1.0, 2.0], mean, clusters=["a", "a"])
    with pytest.raises(ValueError, match="needs the clusters"):
        bootstrap([1.0, 2.0], mean, within_clusters=True)
    with pytest.raises(ValueError, match="2 names of groups for 3 rows"):
        bootstrap([1.0, 2.0, 3.0], mean, clusters=["a", "b"])
    with pytest.raises(ValueError, match="no value in"):
        bootstrap([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0]], lambda r: 1.0 if np.ptp(r[:, 0]) else float("nan"), draws=200)
