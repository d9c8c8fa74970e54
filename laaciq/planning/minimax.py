"""Minimax weights of languages: multiplicative weights on measured losses, so that the worst-off language loses least.

Second-order rounding minimises the mean of the languages' errors under weights w. Minimax looks for the w whose minimiser has the smallest
worst loss: a zero-sum game, solved by multiplicative weights (Freund & Schapire 1999). The proof holds for the continuous relaxation only
(docs/theory.md). With integer codes, the best measured iterate is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from laaciq.options import Objective
from laaciq.planning.objectives import objective_value

# Exponent by which a language's weight grows when it loses twice the mean.
STEP = 1.0
# The search ends when the best iterate has not improved by this share for PATIENCE rounds.
IMPROVEMENT, PATIENCE = 0.01, 2


def reweighted(weights: np.ndarray, losses: np.ndarray, step: float = STEP) -> np.ndarray:
    """The weights of the next round: a language that loses more than the mean gets a larger weight. Weights sum to one."""
    mean = max(float(losses.mean()), 1e-12)
    grown = weights * np.exp(step * np.clip(losses / mean - 1, -1, 1))
    return grown / grown.sum()


def minimax_rounds(
    start: np.ndarray,
    measure: Callable[[int, np.ndarray], np.ndarray],
    objective: Objective,
    rounds: int,
    user_weights: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The weights of each round and their losses `measure(round, weights)`, until nothing is gained."""
    weights, best, waited = start, np.inf, 0
    for number in range(rounds + 1):
        losses = measure(number, weights)
        yield weights, losses
        value = float(objective_value(losses, objective, user_weights))
        waited = 0 if value < best * (1 - IMPROVEMENT) else waited + 1
        best = min(best, value)
        if waited >= PATIENCE or len(weights) < 2:
            return
        weights = reweighted(weights, losses)
