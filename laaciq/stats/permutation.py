"""Tests that need no distribution: two groups by rearranging them, differences by flipping signs. Pairings: `laaciq.stats.correlation`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from laaciq.stats.columns import column

DRAWS = 10_000


@dataclass(frozen=True)
class PermutationTest:
    """`p` is two-sided. `exact`: every arrangement was enumerated; otherwise p is from random ones, the observed one counted."""

    value: float
    p: float
    exact: bool


def two_sample_test(left: ArrayLike, right: ArrayLike, *, draws: int = DRAWS, seed: int = 0) -> PermutationTest:
    """The difference of means against all divisions of the values into groups of these sizes; random ones if there are more than `draws`.

    Valid if, without an effect, all values are exchangeable: the groups then have one distribution, variances included. Fewer than
    40 arrangements cannot reach 0.05 (Fisher 1935; Phipson & Smyth 2010 on counting the observed one).
    """
    left, right = column(left, least=1, name="the left group"), column(right, least=1, name="the right group")
    if len(left) + len(right) < 3:
        raise ValueError("two values have no arrangement but their own and its mirror: give at least three")
    # Two-sided p is twice the smaller tail. R's `coin::oneway_test` counts both tails, which differ in groups of unequal size.
    result = stats.permutation_test(
        (left, right), _mean_difference, vectorized=True, n_resamples=draws, random_state=np.random.default_rng(seed)
    )
    exact = math.comb(len(left) + len(right), len(left)) <= draws
    return PermutationTest(float(result.statistic), float(result.pvalue), exact)


def sign_flip_test(differences: ArrayLike, *, draws: int = DRAWS, seed: int = 0) -> PermutationTest:
    """The mean of paired differences against all flips of their signs; random flips if there are more than `draws`.

    Valid if, without an effect, differences are independent and symmetric about zero. Below 6 differences nothing reaches 0.05.
    """
    differences = column(differences, least=2, name="the column of differences")
    result = stats.permutation_test(
        (differences,),
        lambda values, axis: np.mean(values, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=draws,
        random_state=np.random.default_rng(seed),
    )
    return PermutationTest(float(result.statistic), float(result.pvalue), 2 ** len(differences) <= draws)


def _mean_difference(left: np.ndarray, right: np.ndarray, axis: int) -> np.ndarray:
    return np.mean(left, axis=axis) - np.mean(right, axis=axis)
