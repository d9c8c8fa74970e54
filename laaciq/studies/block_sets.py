"""Sets of protected blocks, and the exact optimum under an additive model of the losses.

The model: protecting block l lowers language λ's loss by g_l(λ), whatever else is protected, so that the set S leaves L(S, λ) = L(∅, λ) −
Σ_{l ∈ S} g_l(λ). The worst language's loss, max_λ L(S, λ), is minimised. g_l is measured by protecting l alone among quantized blocks. That
is closer to a model with a few protected blocks than quantizing l alone, and predicts better.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from laaciq.errors import BadOption, LaaciqError

# Up to this number all sets are enumerated; above it a mixed-integer program gives the same result.
ENUMERATED = 10**6


def set_count(blocks: int, protect: int) -> int:
    """C(blocks, protect); an error if so many blocks cannot be protected."""
    if not 1 <= protect < blocks:
        raise BadOption(f"{protect} protected blocks are out of range: the model has {blocks}; give 1 to {blocks - 1}")
    return comb(blocks, protect)


def block_sets(blocks: int, protect: int) -> list[tuple[int, ...]]:
    """All sets of this many blocks, in lexicographic order."""
    return list(combinations(range(blocks), protect))


def predicted_worst(sets: np.ndarray, unprotected: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """max_λ L(S, λ) for every row S of `sets`. `unprotected` is L(∅, λ), `gains` is g, (languages, blocks)."""
    worst = np.full(len(sets), -np.inf)
    for loss, gain in zip(unprotected, gains, strict=True):
        np.maximum(worst, loss - gain[sets].sum(1), out=worst)
    return worst


def best_sets(
    unprotected: np.ndarray, gains: np.ndarray, protect: int, *, count: int, enumerated: int = ENUMERATED
) -> list[tuple[int, ...]]:
    """The `count` sets with the smallest predicted worst loss, best first."""
    blocks = gains.shape[1]
    if comb(blocks, protect) <= enumerated:
        sets = block_sets(blocks, protect)
        order = np.argsort(predicted_worst(np.array(sets), unprotected, gains), kind="stable")[:count]
        return [sets[index] for index in order]
    best: list[tuple[int, ...]] = []
    while len(best) < count:
        best.append(_best_other(unprotected, gains, protect, best))
    return best


def _best_other(
    unprotected: np.ndarray, gains: np.ndarray, protect: int, excluded: list[tuple[int, ...]]
) -> tuple[int, ...]:
    """The best set that is not excluded. x_l ∈ {0, 1} says whether l is protected, t is the worst loss.

    min t with t + Σ g_l(λ) x_l ≥ L(∅, λ) for every λ, Σ x_l = k, Σ_{l ∈ S} x_l ≤ k − 1 for every excluded S.
    """
    languages, blocks = gains.shape
    constraints = [
        LinearConstraint(np.column_stack([gains, np.ones(languages)]), unprotected, np.inf),
        LinearConstraint(np.append(np.ones(blocks), 0.0), protect, protect),
    ]
    if excluded:
        cuts = np.zeros((len(excluded), blocks + 1))
        for row, blocks_of_set in enumerate(excluded):
            cuts[row, list(blocks_of_set)] = 1.0
        constraints.append(LinearConstraint(cuts, -np.inf, protect - 1))
    solved = milp(
        np.append(np.zeros(blocks), 1.0),
        integrality=np.append(np.ones(blocks), 0.0),
        bounds=Bounds(np.append(np.zeros(blocks), -np.inf), np.append(np.ones(blocks), np.inf)),
        constraints=constraints,
        options={"mip_rel_gap": 0.0},
    )
    if solved.x is None:
        raise LaaciqError(f"no set of blocks was found ({solved.message}): protect fewer blocks")
    return tuple(np.flatnonzero(solved.x[:blocks] > 0.5).tolist())
