import numpy as np
import pytest

from laaciq.trials.losses import Losses

CODES = ["eng", "swa", "hin"]
DOCUMENTS = {code: [str(number) for number in range(12)] for code in CODES}
TOKENS = {code: np.arange(20, 32) for code in CODES}


def losses(seed):
    random = np.random.default_rng(seed)
    loss = {code: random.normal(3.0, 1.0, 12) for code in CODES}
    return Losses.of(loss, TOKENS, DOCUMENTS, parallel=True, seed=0)


def test_a_weighted_mean_of_losses_is_one_in_every_language_and_document():
    left, right = losses(1), losses(2)
    mixed = left.scaled(0.25).plus([right.scaled(0.75)])
    assert mixed.per_token == pytest.approx(0.25 * left.per_token + 0.75 * right.per_token)
    for place in range(len(CODES)):
        expected = 0.25 * left.influence[place] + 0.75 * right.influence[place]
        assert mixed.influence[place] == pytest.approx(expected)


@pytest.mark.parametrize("factor", [2.0, 150.0, 1 / 3])
def test_losses_are_compared_with_a_multiple_of_themselves_without_noise(factor):
    """Differences have no variance then, and what rounding leaves of it may be negative."""
    whole = losses(1)
    for ratio in (whole.worst_ratio(whole.scaled(factor)), whole.mean_ratio(whole.scaled(factor))):
        # The interval's ends are computed to one in a thousand.
        assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1 / factor,) * 3, rel=2e-3)
