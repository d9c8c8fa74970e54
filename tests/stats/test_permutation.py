"""Against the enumeration of all arrangements, here and in R."""

from itertools import combinations, product

import numpy as np
import pytest

from laaciq.stats.permutation import sign_flip_test, two_sample_test
from tests.stats.sleep import FIRST, SECOND


def test_flips_of_signs_are_enumerated():
    """R: d <- first - second; mean(abs(as.matrix(expand.grid(rep(list(c(-1, 1)), 10))) %*% d) >= abs(sum(d)) - 1e-9)."""
    differences = FIRST - SECOND
    flipped = np.abs([np.mean(signs * differences) for signs in product((-1, 1), repeat=10)])
    result = sign_flip_test(differences)
    assert result.exact
    assert result.value == pytest.approx(-1.58)
    assert result.p == pytest.approx(np.mean(flipped >= 1.58 - 1e-12)) == pytest.approx(4 / 1024)


def test_divisions_are_enumerated():
    """Groups of 4 and 3 have 35 divisions. R: coin::oneway_test(y ~ group, distribution = "exact")."""
    left, right = [9.0, 8.0, 7.5, 3.0], [1.0, 2.0, 2.5]
    pooled = np.array(left + right)
    means = [pooled[list(at)].mean() - np.delete(pooled, at).mean() for at in combinations(range(7), 4)]
    result = two_sample_test(left, right)
    assert result.exact
    assert (
        result.p
        == pytest.approx(min(1.0, 2 * np.mean(np.array(means) >= result.value - 1e-12)))
        == pytest.approx(2 / 35)
    )


def test_p_doubles_the_smaller_tail():
    """coin::oneway_test(y ~ group, distribution = "exact", alternative = "greater") gives 13/210. Its two-sided p, 29/210, counts distances
    from the mean instead: the two differ for groups of unequal size."""
    result = two_sample_test([9.0, 4.0, 7.5, 3.0], [1.0, 2.0, 8.0, 3.5, 2.5, 0.5])
    assert result.p == pytest.approx(2 * 13 / 210)


def test_random_arrangements_come_near_the_exact_p():
    """Of 1,000 flips the standard error of a p of 0.004 is 0.002; three of them, and the observed one counted."""
    drawn = sign_flip_test(FIRST - SECOND, draws=1000, seed=1)
    assert not drawn.exact
    assert drawn.p == pytest.approx(4 / 1024, abs=0.007)


def test_without_an_effect_p_is_uniform():
    """5 % are meant of 300 sets: ±3.8 % are three standard errors."""
    random = np.random.default_rng(0)
    p = [two_sample_test(*random.exponential(size=(2, 8)), draws=200).p for _ in range(300)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.038)


def test_what_cannot_be_tested_is_refused():
    with pytest.raises(ValueError, match="at least three"):
        two_sample_test([1.0], [2.0])
    with pytest.raises(ValueError, match="at least 2"):
        sign_flip_test([1.0])
