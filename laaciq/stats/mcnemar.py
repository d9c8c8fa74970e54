"""Do two models answer differently? McNemar's test on the items that one of them has right and the other wrong."""

from __future__ import annotations

from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class McNemar:
    """Two-sided p. `exact` never rejects too often; `mid_p` hardly ever does, and rejects more of what is false (Fagerland et al. 2013)."""

    exact: float
    mid_p: float


def mcnemar(only_first: int, only_second: int) -> McNemar:
    """From the number of items that only the first model has right, and that only the second one has right.

    Given b + c such items, b is binomial with probability 1/2 if the models are equally good: exact p = min(1, 2·P(X ≤ min(b, c))).

    Mid-p counts outcomes that are as far off as the observed one by half: 2·P(X ≤ min(b, c)) − P(X = b), or 1 − ½P(X = b) if b = c (Fagerland,
    Lydersen & Laake 2013). Items that both have right or wrong do not count. Valid for independent items.
    """
    if min(only_first, only_second) < 0:
        raise ValueError("counts of items cannot be below zero")
    total, fewer = only_first + only_second, min(only_first, only_second)
    if total == 0:
        return McNemar(1.0, 1.0)
    tails = 2 * float(stats.binom.cdf(fewer, total, 0.5))
    at = float(stats.binom.pmf(fewer, total, 0.5))
    mid = 1 - at / 2 if only_first == only_second else tails - at
    return McNemar(min(1.0, tails), mid)
