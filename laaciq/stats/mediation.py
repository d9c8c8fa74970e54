"""How much of an effect goes through mediators: product of coefficients, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from laaciq.stats.bootstrap import BootstrapInterval, Kind, bootstrap_each
from laaciq.stats.columns import column

DRAWS = 5000


@dataclass(frozen=True)
class Mediation:
    """Effects of one unit of the cause. `total` = `direct` + `indirect`; `chain` is the part of `indirect` that passes all mediators in order.

    `share` is indirect / total: it is no share, and has no sense, where total is near zero or has another sign.
    """

    total: BootstrapInterval
    direct: BootstrapInterval
    indirect: BootstrapInterval
    chain: BootstrapInterval

    @property
    def share(self) -> float:
        return self.indirect.value / self.total.value if self.total.value else float("nan")


def mediate(
    cause: ArrayLike,
    mediators: Sequence[ArrayLike],
    outcome: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    kind: Kind = "bca",
    draws: int = DRAWS,
    seed: int = 0,
) -> Mediation:
    """Least squares along cause → mediator 1 → … → mediator k → outcome.

    Each variable is regressed on all before it. The chain is the product of the coefficients of neighbours, a·b for one mediator (Baron & Kenny
    1986); direct is the cause's coefficient in the outcome's regression; indirect is total − direct, which least squares makes a·b for one
    mediator. Rows, or whole `clusters`, are drawn (Preacher & Hayes 2008).

    Causal only if effects are linear, no unmeasured variable moves two of these, and the order is right. An interval of a·b is too narrow
    below some 50 rows where both paths are weak.
    """
    columns = [column(cause, least=4, name="the cause")]
    columns += [column(values, least=4, name=f"mediator {place}") for place, values in enumerate(mediators, 1)]
    columns.append(column(outcome, least=4, name="the outcome"))
    if not mediators:
        raise ValueError("mediation needs at least one mediator")
    if len({len(values) for values in columns}) > 1:
        raise ValueError("cause, mediators and outcome differ in length: give one value each per row")
    table = np.stack(columns, axis=1)
    if len(table) < len(columns) + 2:
        raise ValueError(
            f"{len(table)} rows are too few for {len(mediators)} mediators: give at least {len(columns) + 2}"
        )

    return Mediation(*bootstrap_each(table, _effects, kind=kind, clusters=clusters, draws=draws, seed=seed))


def _effects(rows: np.ndarray) -> np.ndarray:
    """Total, direct, indirect and chain; not a number where columns do not determine them."""
    centred = rows - rows.mean(0)
    chain = 1.0
    coefficients = np.zeros(1)
    for place in range(1, rows.shape[1]):
        coefficients, _, rank, _ = np.linalg.lstsq(centred[:, :place], centred[:, place], rcond=None)
        if rank < place:
            return np.full(4, np.nan)
        chain *= float(coefficients[-1])
    total = centred[:, 0] @ centred[:, -1] / (centred[:, 0] @ centred[:, 0])
    direct = coefficients[0]
    return np.array([total, direct, total - direct, chain])
