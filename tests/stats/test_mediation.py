"""Against identities of least squares, and by how often intervals cover."""

import numpy as np
import pytest

from laaciq.stats.mediation import mediate


def test_the_product_of_coefficients_is_the_difference_of_effects():
    random = np.random.default_rng(0)
    cause = random.normal(size=60)
    mediator = 0.8 * cause + random.normal(size=60)
    outcome = 0.5 * mediator + 0.2 * cause + random.normal(size=60)
    result = mediate(cause, [mediator], outcome, draws=400)
    assert result.indirect.value == pytest.approx(result.chain.value)
    assert result.total.value == pytest.approx(result.direct.value + result.indirect.value)
    assert result.indirect.low < 0.4 < result.indirect.high
    assert result.share == pytest.approx(result.chain.value / result.total.value)


def test_a_noiseless_chain_is_recovered():
    """Each link has a part of its own, so that coefficients are determined: 2 · 3 · 0.5 along the chain, nothing beside it."""
    random = np.random.default_rng(1)
    cause, first, second = random.normal(size=(3, 30))
    alignment = 2 * cause + first
    redundancy = 3 * alignment + second
    result = mediate(cause, [alignment, redundancy], 0.5 * redundancy, draws=200)
    assert result.chain.value == pytest.approx(2 * 3 * 0.5, rel=0.5)
    assert result.direct.value == pytest.approx(0.0, abs=1e-9)
    assert result.share == pytest.approx(1.0)


def test_intervals_of_a_mediated_effect_cover():
    """100 sets of 60 rows, a = b = 0.6: 95 % are meant, three Monte Carlo errors are 6.5 %."""
    random, covered = np.random.default_rng(2), 0
    for _ in range(100):
        cause = random.normal(size=60)
        mediator = 0.6 * cause + random.normal(size=60)
        interval = mediate(
            cause, [mediator], 0.6 * mediator + random.normal(size=60), kind="percentile", draws=150
        ).chain
        covered += interval.low <= 0.36 <= interval.high
    assert covered / 100 == pytest.approx(0.95, abs=0.07)


def test_too_few_rows_for_mediators_are_refused():
    with pytest.raises(ValueError, match="5 rows are too few for 2 mediators"):
        mediate(range(5), [range(5), range(5)], range(5))
