import numpy as np
import pytest

import laaciq
from laaciq.studies.outcomes import outcomes
from laaciq.trials.losses import Losses

FEW = ["eng", "swa", "hin"]
DRAWS = 200


@pytest.fixture(scope="module")
def texts():
    return laaciq.read_split().validation.select(FEW)


@pytest.fixture(scope="module")
def losses():
    """Four interventions, each worse than the one before by more than noise, ten passages."""
    random = np.random.default_rng(0)
    return {code: random.normal(0, 0.1, (4, 10)) + 2.0 * np.arange(4)[:, None] for code in FEW}


@pytest.fixture(scope="module")
def tokens():
    random = np.random.default_rng(1)
    return {code: random.integers(10, 20, 10) for code in FEW}


@pytest.fixture(scope="module")
def result(texts, losses, tokens):
    return outcomes(texts, losses, tokens, draws=DRAWS, seed=3)


def test_worst_and_disparity_are_those_of_an_evaluation(texts, result, losses, tokens):
    documents = {code: texts[code].documents for code in FEW}
    for index in range(4):
        loss = {code: losses[code][index] for code in FEW}
        alone = Losses.of(loss, tokens, documents, parallel=True, seed=3, draws=DRAWS)
        assert result.loss[index] == pytest.approx(alone.per_token)
        # Resamples vary as widely as the estimate does: 200 draws leave 5 % for chance, and twice that is allowed.
        assert result.draws["mean"][:, index].std() == pytest.approx(mean_error(alone), rel=0.1)
        assert result.worst_language(index) == FEW[int(np.argmax(alone.per_token))]
        assert result.estimate("disparity", index).value == pytest.approx(np.ptp(np.expm1(alone.per_token)))
        assert result.observed["disparity"][index] == pytest.approx(np.ptp(np.expm1(alone.per_token)))


def mean_error(losses):
    return losses.joint.linear(np.full((1, 3), 1 / 3)).standard_errors[0]


def test_what_differs_beyond_noise_has_a_sure_rank(result):
    assert [result.rank("worst", index).model_dump() for index in range(4)] == [
        {"value": place, "low": place, "high": place} for place in (1, 2, 3, 4)
    ]
    assert result.best("worst") == 0
    assert result.best("worst", [2, 3]) == 2
    assert set(result.best_draws("worst")) == {0}


def test_what_is_equal_but_for_noise_has_no_sure_rank(texts, tokens):
    random = np.random.default_rng(2)
    result = outcomes(texts, {c: random.normal(1, 1, (20, 10)) for c in FEW}, tokens, draws=DRAWS, seed=0)
    rank = result.rank("worst", 0)
    assert rank.high - rank.low >= 8


def test_differences_are_paired(texts, losses, tokens):
    """The second costs a tenth of a nat a token more on every passage: of that there is no doubt, however noisy both are."""
    noisy = {c: np.random.default_rng(5).normal(0, 10, 10) for c in FEW}
    both = {c: np.stack([noisy[c], noisy[c] + 0.1 * tokens[c]]) for c in FEW}
    result = outcomes(texts, both, tokens, draws=DRAWS, seed=0)
    more = result.difference("worst", 1, 0)
    assert (more.value, more.low, more.high) == pytest.approx((0.1, 0.1, 0.1))
    assert result.estimate("worst", 0).high - result.estimate("worst", 0).low > 0.5
