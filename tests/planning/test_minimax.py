from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from laaciq.options import Objective, PlanOptions
from laaciq.planning.minimax import minimax_rounds, reweighted
from laaciq.planning.objectives import objective_value


@given(arrays(float, 6, elements=st.floats(1e-3, 1.0)))
def test_weights_stay_weights_and_grow_with_the_loss(losses):
    weights = reweighted(np.full(6, 1 / 6), losses)
    assert weights.sum() == pytest.approx(1)
    order = np.argsort(losses)
    assert (np.diff(weights[order]) >= -1e-12).all()


def game(weights, base=np.array([4.0, 1.0, 1.0])):
    """Each language loses less the more it counts: minimax makes all losses equal, w ∝ base."""
    return base / weights / 10


def test_the_worst_loss_falls_towards_the_saddle_point():
    result = list(minimax_rounds(np.full(3, 1 / 3), lambda _, w: game(w), "worst", 30))
    values = [losses.max() for _, losses in result]
    # At the saddle point all lose 0.6.
    assert values[0] == pytest.approx(1.2)
    assert min(values) == pytest.approx(0.6, rel=0.05)


def test_it_ends_when_nothing_is_gained():
    rounds = []

    def measure(number, weights):
        rounds.append(number)
        return np.ones(3)

    list(minimax_rounds(np.full(3, 1 / 3), measure, "worst", 50))
    assert rounds == [0, 1, 2]


@pytest.mark.parametrize(
    ("objective", "value"), [("mean", 2.5), ("worst", 4.0), ("worst-quarter", 4.0), ("worst-and-spread", 7.0)]
)
def test_objectives(objective, value):
    assert objective_value(np.array([1.0, 2.0, 3.0, 4.0]), objective) == value


@given(arrays(float, 5, elements=st.floats(0.0, 1.0)))
def test_the_help_gives_the_formula_of_worst_and_spread(losses):
    """It is no disparity: it grows with the worst loss too."""
    assert "worst-and-spread (2·max − min)" in PlanOptions.model_fields["objective"].description
    assert objective_value(losses, "worst-and-spread") == pytest.approx(2 * losses.max() - losses.min())
    assert "disparity" not in get_args(Objective)
