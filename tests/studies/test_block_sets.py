from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laaciq.errors import BadOption
from laaciq.studies.block_sets import best_sets, block_sets, predicted_worst, set_count


def random_losses(seed, languages=4, blocks=7):
    random = np.random.default_rng(seed)
    return random.uniform(0.5, 1.0, languages), random.exponential(0.1, (languages, blocks))


@pytest.mark.parametrize(("blocks", "protect", "count"), [(12, 3, 220), (6, 1, 6), (6, 5, 6)])
def test_all_sets_once(blocks, protect, count):
    sets = block_sets(blocks, protect)
    assert len(set(sets)) == len(sets) == count == set_count(blocks, protect)
    assert all(len(set(entry)) == protect and entry == tuple(sorted(entry)) for entry in sets)


@pytest.mark.parametrize("protect", [-1, 0, 6, 7])
def test_some_blocks_and_not_all(protect):
    with pytest.raises(BadOption, match="give 1 to 5"):
        set_count(6, protect)


def test_the_prediction_by_definition():
    unprotected, gains = random_losses(0)
    sets = block_sets(7, 3)
    expected = [max(unprotected[k] - sum(gains[k, b] for b in blocks) for k in range(4)) for blocks in sets]
    assert predicted_worst(np.array(sets), unprotected, gains) == pytest.approx(expected)


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_the_mixed_integer_program_finds_what_enumeration_finds(seed, protect):
    unprotected, gains = random_losses(seed)
    count = min(5, len(list(combinations(range(7), protect))))
    listed = best_sets(unprotected, gains, protect, count=count)
    solved = best_sets(unprotected, gains, protect, count=count, enumerated=0)
    worst = [predicted_worst(np.array(blocks), unprotected, gains) for blocks in (listed, solved)]
    # Sets that are equal but for HiGHS's tolerance of 1e-6 may change places.
    assert worst[0] == pytest.approx(worst[1], abs=1e-6)
    assert len(set(solved)) == count


def test_a_model_too_deep_to_enumerate():
    """C(48, 8) is 377 million. Two languages that do not interfere: the best set is known."""
    gains = np.full((2, 48), 0.001)
    gains[0, [3, 9, 20, 41]], gains[1, [0, 11, 30, 47]] = 0.1, 0.1
    assert best_sets(np.ones(2), gains, 8, count=1) == [(0, 3, 9, 11, 20, 30, 41, 47)]
