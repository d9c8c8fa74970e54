"""Against R, identities of least squares, and by how often intervals cover."""

import numpy as np
import pytest

from laaciq.stats.mediation import mediate
from tests.stats.stackloss import ACID_CONCENTRATION, AIR_FLOW, LOSS, WATER_TEMPERATURE


def test_effects_of_stackloss_are_those_of_r():
    """coef(lm(stack.loss ~ Air.Flow, stackloss)); coef(lm(Water.Temp ~ Air.Flow, stackloss))
    coef(lm(stack.loss ~ Air.Flow + Water.Temp, stackloss)): total, direct, and the product of Air.Flow's and Water.Temp's.

    With a second mediator: coef(lm(Acid.Conc. ~ Air.Flow + Water.Temp, stackloss))
    coef(lm(stack.loss ~ Air.Flow + Water.Temp + Acid.Conc., stackloss))

    Intervals: set.seed(1); boot.ci(boot(stackloss, function(d, i) coef(lm(Water.Temp ~ Air.Flow, d[i, ]))[2] *
      coef(lm(stack.loss ~ Air.Flow + Water.Temp, d[i, ]))[3], 20000), type = "perc")"""
    one = mediate(AIR_FLOW, [WATER_TEMPERATURE], LOSS, kind="percentile", draws=2000)
    values = (one.total.value, one.direct.value, one.indirect.value, one.chain.value)
    assert values == pytest.approx((1.020309313, 0.6711544409, 0.3491548725, 0.3491548725), abs=1e-9)
    # An end of 2,000 draws has a standard error of 1.5 % of the length.
    assert (one.chain.low, one.chain.high) == pytest.approx((0.1035, 0.5590), abs=0.05 * (0.5590 - 0.1035))
    two = mediate(AIR_FLOW, [WATER_TEMPERATURE, ACID_CONCENTRATION], LOSS, kind="percentile", draws=50)
    values = (two.total.value, two.direct.value, two.indirect.value, two.chain.value)
    assert values == pytest.approx((1.020309313, 0.7156402005, 0.3046691129, 1.758607688e-05), abs=1e-9)


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
