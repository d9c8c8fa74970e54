"""How much each language's text should count, so that the worst-off language loses least: multiplicative weights on measured losses.

Second-order rounding minimises the mean of the languages' errors under weights w. Minimax asks for the w whose minimiser has the least
largest loss: a zero-sum game in which multiplicative weights (Freund & Schapire 1999) weigh the languages. What is proved of it holds for the
continuous relaxation only, see docs/theory.md; with codes that are integers the best iterate that was measured is what counts.
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
    """One round: a language that loses more than the mean counts more from now on. Weights sum to one."""
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
    """Weights and the losses `measure(round, weights)` that they led to, round after round, until nothing is gained any more."""
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
