"""Against R's metafor, closed forms, and by how often intervals cover."""

import numpy as np
import pytest

from laaciq.stats.meta_analysis import pool_effects

# R's `metafor::dat.bcg` (Colditz et al. 1994): tuberculosis positive and negative, vaccinated and control.
BCG = np.array(
    [
        [4, 119, 11, 128], [6, 300, 29, 274], [3, 228, 11, 209], [62, 13536, 248, 12619], [33, 5036, 47, 5761],
        [180, 1361, 372, 1079], [8, 2537, 10, 619], [505, 87886, 499, 87892], [29, 7470, 45, 7232], [17, 1699, 65, 1600],
        [186, 50448, 141, 27197], [5, 2493, 3, 2338], [27, 16886, 29, 17825],
    ],
    dtype=float,
)  # fmt: skip


@pytest.fixture(scope="module")
def log_risks():
    treated, control = BCG[:, 0] + BCG[:, 1], BCG[:, 2] + BCG[:, 3]
    effects = np.log(BCG[:, 0] / treated) - np.log(BCG[:, 2] / control)
    return effects, 1 / BCG[:, 0] - 1 / treated + 1 / BCG[:, 2] - 1 / control


@pytest.mark.parametrize(
    "method, interval, expected",
    [
        # Estimate, standard error, interval, p, τ² and I².
        ("reml", "normal", (-0.7145323, 0.1797815, -1.0668976, -0.3621670, 7.054258e-05, 0.3132433, 0.9222138)),
        (
            "dersimonian-laird",
            "normal",
            (-0.7141172, 0.1787421, -1.0644453, -0.3637892, 6.462924e-05, 0.3087603, 0.9211735),
        ),
        ("reml", "hartung-knapp", (-0.7145323, 0.1807917, -1.1084437, -0.3206210, 1.920015e-03, 0.3132433, 0.9222138)),
        # The same where effects differ by more than their variances imply: √q is above 1.
        (
            "reml",
            "modified-hartung-knapp",
            (-0.7145323, 0.1807917, -1.1084437, -0.3206210, 1.920015e-03, 0.3132433, 0.9222138),
        ),
    ],
)
def test_pooled_effects_are_metafors(log_risks, method, interval, expected):
    """dat <- escalc(measure = "RR", ai = tpos, bi = tneg, ci = cpos, di = cneg, data = dat.bcg)
    rma(yi, vi, data = dat, control = list(threshold = 1e-14, maxiter = 1000)); with method = "DL"; with test = "knha".

    Without `control`, metafor stops at a τ² that is right to 1e-5."""
    pooled = pool_effects(*log_risks, method=method, interval=interval)
    ends = (pooled.mean, pooled.standard_error, pooled.low, pooled.high)
    shown = (*ends, pooled.p, pooled.between_variance, pooled.inconsistency)
    assert shown == pytest.approx(expected, abs=5e-8)
    assert pooled.heterogeneity == pytest.approx(152.233008082, abs=1e-9)
    assert pooled.heterogeneity_p == pytest.approx(1.99676459e-26, rel=1e-8)


def test_equal_effects_have_no_variance_between_studies():
    for method in ("reml", "dersimonian-laird"):
        pooled = pool_effects([0.5, 0.5, 0.5], [0.1, 0.2, 0.4], method=method, interval="normal")
        assert pooled.between_variance == pytest.approx(0.0, abs=1e-8)
        assert pooled.mean == pytest.approx(0.5)
        assert pooled.standard_error == pytest.approx(1 / np.sqrt(17.5))


def test_effects_that_agree_by_chance_give_no_narrow_interval():
    """Two effects, 0.01 apart with standard errors of 0.5: τ² = 0, the standard error of the mean is 0.5/√2, and Hartung and Knapp's is half
    of 0.01. The modified one is the first, with Student's t on one degree of freedom."""
    effects, variances = [1.00, 1.01], [0.25, 0.25]
    plain = pool_effects(effects, variances)
    modified = pool_effects(effects, variances, interval="modified-hartung-knapp")
    assert plain.standard_error == pytest.approx(0.005)
    assert modified.standard_error == pytest.approx(0.5 / np.sqrt(2))
    # qt(0.975, 1) = 12.706.
    assert modified.high - modified.mean == pytest.approx(12.706 * 0.5 / np.sqrt(2), rel=1e-4)
    assert modified.mean == plain.mean


def test_intervals_of_pooled_effects_cover():
    """300 sets of 6 studies with τ² = v: 95 % for Hartung and Knapp, ±3.8 % by chance; the normal interval falls short."""
    random, covered = np.random.default_rng(0), np.zeros(2)
    for _ in range(300):
        effects = 0.3 + np.sqrt(0.2) * random.standard_normal(6)
        for place, interval in enumerate(("hartung-knapp", "normal")):
            pooled = pool_effects(effects, np.full(6, 0.1), interval=interval)
            covered[place] += pooled.low <= 0.3 <= pooled.high
    assert covered[0] / 300 == pytest.approx(0.95, abs=0.038)
    assert covered[1] < covered[0]
