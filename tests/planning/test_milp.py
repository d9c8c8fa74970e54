from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laaciq.planning.milp import allocate
from laaciq.planning.objectives import objective_value

OBJECTIVES = ["worst", "worst-quarter", "worst-and-spread", "mean"]


def instance(seed, *, units, choices, languages):
    """More bits mostly cost less, not always: the solver must not count on it."""
    random = np.random.default_rng(seed)
    sizes = [np.sort(random.integers(1, 40, choices)) for _ in range(units)]
    losses = [np.exp(-size / 10)[:, None] * random.gamma(2.0, 1.0, (choices, languages)) for size in sizes]
    return losses, sizes


def brute_force(losses, sizes, budget, objective):
    plans = np.array(list(product(*(range(len(size)) for size in sizes))))
    total = sum(size[plans[:, u]] for u, size in enumerate(sizes))
    loss = sum(group_losses[plans[:, u]] for u, group_losses in enumerate(losses))
    return objective_value(loss[total <= budget], objective).min()


# What is best for all languages but one may be worse for the spread.
@example(170843, 3, 2, 2, "worst-and-spread", 0.5)
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from(OBJECTIVES),
    st.floats(0, 1),
)
def test_optimal_against_enumeration_and_within_budget(seed, units, choices, languages, objective, share):
    losses, sizes = instance(seed, units=units, choices=choices, languages=languages)
    least, most = sum(s.min() for s in sizes), sum(s.max() for s in sizes)
    budget = int(least + share * (most - least))
    result = allocate(losses, sizes, budget, objective, gap=0.0)
    assert result.size == sum(s[c] for s, c in zip(sizes, result.chosen, strict=True)) <= budget
    assert result.losses == pytest.approx(
        sum(group_losses[c] for group_losses, c in zip(losses, result.chosen, strict=True))
    )
    best = brute_force(losses, sizes, budget, objective)
    # HiGHS works to 1e-6 of its scaled rows.
    assert result.value == pytest.approx(best, rel=1e-5, abs=1e-5)


def models_size():
    """As in models: what a tensor costs differs far more between tensors than between languages."""
    random = np.random.default_rng(1)
    sizes = [np.array([2, 3, 4, 6, 8, 16]) * 1000 for _ in range(84)]
    losses = [
        np.exp2(-2.0 * np.array([2, 3, 4, 6, 8, 16]))[:, None] * random.lognormal(0, 1) * random.lognormal(0, 0.3, 32)
        for _ in range(84)
    ]
    return losses, sizes


def test_an_instance_of_a_models_size_is_solved_to_the_stated_gap():
    result = allocate(*models_size(), 84 * 4250, gap=0.02, seconds=60)
    assert result.gap <= 0.02
    assert result.size <= 84 * 4250
    assert not result.timed_out


def test_a_solution_that_the_time_limit_cut_short_is_marked():
    # Languages differ as much as tensors. The optimum for 84 of them was proved within three seconds once; for 300 the bound is still
    # 0.8 % away after thirty.
    random, bits = np.random.default_rng(1), np.array([2, 3, 4, 6, 8, 16])
    weights = random.integers(500, 5000, 300)
    losses = [np.exp2(-2.0 * bits)[:, None] * random.lognormal(0, 1, (6, 32)) for _ in weights]
    assert allocate(losses, [bits * w for w in weights], int(4.25 * weights.sum()), gap=0.0, seconds=3).timed_out


def test_weights_count_for_the_mean():
    losses = [np.array([[1.0, 0.0], [0.0, 1.0]])]
    sizes = [np.array([1, 1])]
    assert allocate(losses, sizes, 1, "mean", weights=np.array([3.0, 1.0])).chosen == [1]
    assert allocate(losses, sizes, 1, "mean", weights=np.array([1.0, 3.0])).chosen == [0]


def test_a_budget_below_the_smallest_plan_is_an_error():
    losses, sizes = instance(2, units=3, choices=3, languages=2)
    with pytest.raises(ValueError, match="allows no plan"):
        allocate(losses, sizes, sum(int(s.min()) for s in sizes) - 1)
