"""The choice of a storage format for every tensor group as a mixed-integer linear program (MILP), solved by HiGHS.

    minimise    f(L)                      the objective over languages
    subject to  L_λ = Σ_u Σ_c loss[u][c, λ]·x_uc,   Σ_c x_uc = 1,   Σ_u Σ_c size[u][c]·x_uc ≤ budget,   x binary

Each objective is linear with a few further variables: the worst is a bound z ≥ L_λ; the worst quarter of k languages is t + Σ u_λ / k with
u_λ ≥ L_λ − t (Rockafellar & Uryasev 2000); 2·max − min is 2z − y with y ≤ L_λ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, hstack

from laaciq.errors import BadOption
from laaciq.options import Objective
from laaciq.planning.objectives import objective_value, quarter

# Largest relative gap between the plan and the proved bound, and the time after which the best plan so far is taken.
GAP, SECONDS = 0.005, 30.0
# The status that scipy gives a solution that was cut short.
_TIMED_OUT = 1


@dataclass(frozen=True)
class Allocation:
    """`chosen` is the choice for every tensor group, with its `losses` by language and its `size` in bits. `gap` is the relative distance
    of `value` from the proved bound. `timed_out`: the solver reached its time limit before the requested gap.
    """

    chosen: list[int]
    losses: np.ndarray
    size: int
    value: float
    gap: float
    timed_out: bool


def allocate(
    losses: Sequence[np.ndarray],
    sizes: Sequence[np.ndarray],
    budget: int,
    objective: Objective = "worst",
    *,
    weights: np.ndarray | None = None,
    gap: float = GAP,
    seconds: float = SECONDS,
) -> Allocation:
    """The best choice for every tensor group within `budget` bits. `losses[u]` is (choices, languages), `sizes[u]` (choices,) in bits. The
    budget must allow the smallest choice of every group.
    """
    least = int(sum(size.min() for size in sizes))
    if budget < least:
        raise ValueError(f"a budget of {budget:,} bits allows no plan: the smallest takes {least:,}")
    # The spread may fall if the best-off language loses more, so no choice is dominated.
    prune = _everything if objective == "worst-and-spread" else _undominated
    kept = [prune(loss, size) for loss, size in zip(losses, sizes, strict=True)]
    few = [loss[rows] for loss, rows in zip(losses, kept, strict=True)]
    few_sizes = [size[rows] for size, rows in zip(sizes, kept, strict=True)]
    limit = budget
    while True:
        picked, bound, timed_out = _solve(few, few_sizes, limit, objective, weights, gap, seconds)
        size = int(sum(size[c] for size, c in zip(few_sizes, picked, strict=True)))
        if size <= budget:
            break
        limit -= size - budget  # the solver's tolerance, taken off the budget
    total = np.sum([loss[c] for loss, c in zip(few, picked, strict=True)], axis=0)
    value = float(objective_value(total, objective, weights))
    return Allocation(
        chosen=[int(rows[c]) for rows, c in zip(kept, picked, strict=True)],
        losses=total,
        size=size,
        value=value,
        gap=max(0.0, value - bound) / max(abs(value), 1e-12),
        timed_out=timed_out,
    )


def _everything(losses: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.arange(len(losses))


def _undominated(losses: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The choices that no other choice beats in size and in every language."""
    order = np.lexsort((losses.sum(1), sizes))
    best: list[int] = []
    for row in order:
        if not any((losses[other] <= losses[row]).all() for other in best):
            best.append(int(row))
    return np.array(best)


def _solve(
    losses: list[np.ndarray],
    sizes: list[np.ndarray],
    budget: int,
    objective: Objective,
    weights: np.ndarray | None,
    gap: float,
    seconds: float,
) -> tuple[list[int], float, bool]:
    """The choice for every group, the proved lower bound of the objective, and whether the time limit was reached."""
    table = np.concatenate(losses)
    scale = max(float(np.abs(table).max()), 1e-30)
    table = table / scale
    counts = [len(loss) for loss in losses]
    binaries = len(table)
    cost, lower, bounds = _linear(table, objective, weights)
    auxiliary = len(lower)
    once = csr_array((np.ones(binaries), (np.repeat(np.arange(len(counts)), counts), np.arange(binaries))))
    none = csr_array((len(counts), auxiliary))
    size = csr_array(np.r_[np.concatenate(sizes) / budget, np.zeros(auxiliary)][None])
    constraints = [LinearConstraint(hstack([once, none]), 1, 1), LinearConstraint(size, -np.inf, 1)]
    constraints += [LinearConstraint(csr_array(np.hstack(part)), -np.inf, 0) for part in bounds]
    solution = milp(
        cost,
        constraints=constraints,
        integrality=np.r_[np.ones(binaries), np.zeros(auxiliary)],
        bounds=Bounds(np.r_[np.zeros(binaries), lower], np.r_[np.ones(binaries), np.full(auxiliary, np.inf)]),
        options={"mip_rel_gap": gap, "time_limit": seconds},
    )
    if solution.x is None:
        raise BadOption(f"the solver found no plan in {seconds:g} s: give a larger --budget")
    parts = np.split(solution.x[:binaries], np.cumsum(counts)[:-1])
    return [int(part.argmax()) for part in parts], float(solution.mip_dual_bound) * scale, solution.status == _TIMED_OUT


def _linear(
    table: np.ndarray, objective: Objective, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Cost of all variables, lower bounds of the auxiliary ones, and pairs (A, B) of constraints A·x + B·auxiliary ≤ 0."""
    binaries, languages = table.shape
    ones, nothing = np.ones((languages, 1)), np.zeros(binaries)
    match objective:
        case "mean":
            return np.average(table, axis=1, weights=weights), np.zeros(0), []
        case "worst":
            return np.r_[nothing, 1], np.array([-np.inf]), [(table.T, -ones)]
        case "worst-quarter":
            share = np.full(languages, 1 / quarter(languages))
            above = np.hstack([-ones, -np.eye(languages)])
            return np.r_[nothing, 1, share], np.r_[-np.inf, np.zeros(languages)], [(table.T, above)]
        case "worst-and-spread":
            worst, best = np.hstack([-ones, 0 * ones]), np.hstack([0 * ones, ones])
            return np.r_[nothing, 2, -1], np.full(2, -np.inf), [(table.T, worst), (-table.T, best)]
