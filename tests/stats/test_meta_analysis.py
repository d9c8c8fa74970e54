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
        # metafor: rma(yi, vi, data = dat), with method = "DL", with test = "knha": estimate, standard error, interval, τ².
        ("reml", "normal", (-0.7145, 0.1798, -1.0669, -0.3622, 0.3132)),
        ("dersimonian-laird", "normal", (-0.7141, 0.1787, -1.0644, -0.3638, 0.3088)),
        ("reml", "hartung-knapp", (-0.7145, 0.1808, -1.1084, -0.3206, 0.3132)),
    ],
)
def test_pooled_effects_are_metafors(log_risks, method, interval, expected):
    pooled = pool_effects(*log_risks, method=method, interval=interval)
    shown = (pooled.mean, pooled.standard_error, pooled.low, pooled.high, pooled.between_variance)
    assert shown == pytest.approx(expected, abs=5e-5)
    assert pooled.heterogeneity == pytest.approx(152.2330, abs=5e-5)
    if method == "reml":
        assert 100 * pooled.inconsistency == pytest.approx(92.22, abs=5e-3)


def test_equal_effects_have_no_variance_between_studies():
    for method in ("reml", "dersimonian-laird"):
        pooled = pool_effects([0.5, 0.5, 0.5], [0.1, 0.2, 0.4], method=method, interval="normal")
        assert pooled.between_variance == pytest.approx(0.0, abs=1e-8)
        assert pooled.mean == pytest.approx(0.5)
        assert pooled.standard_error == pytest.approx(1 / np.sqrt(17.5))


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
