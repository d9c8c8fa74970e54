"""The same items under two models: shares, means, their differences with intervals, and tests.

Valid for independent items.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from laaciq.stats.estimate import TAIL, Estimate
from laaciq.stats.mcnemar import mcnemar
from laaciq.stats.multiplicity import benjamini_hochberg
from laaciq.strict import StrictModel

LEVEL = 0.05


class PairedShares(StrictModel):
    """The share of items that hold under the original and under the quantized model. `lost` items hold under the original only, `gained`
    ones under the quantized model only; `difference` is quantized − original, with its interval. `p` is McNemar's mid-p, `p_corrected` the same
    after Benjamini and Hochberg's correction for the number of languages that are shown together.
    """

    items: int
    original: float
    quantized: float
    lost: int
    gained: int
    difference: Estimate
    p: float
    p_corrected: float

    @property
    def changed(self) -> bool:
        """True if the two models differ beyond noise, after the correction."""
        return self.p_corrected < LEVEL


class PairedMeans(StrictModel):
    """The mean of a number that both models give each item. `difference` is quantized − original; its interval is Student's over items. It is
    None for a single item, whose noise is unknown.
    """

    items: int
    original: float
    quantized: float
    difference: Estimate | None


def paired_shares(original: Sequence[bool], quantized: Sequence[bool]) -> PairedShares:
    """From what holds for each item, in the same order."""
    pairs = list(zip(original, quantized, strict=True))
    if not pairs:
        raise ValueError("there are no items to compare: give at least one")
    lost = sum(before and not after for before, after in pairs)
    gained = sum(after and not before for before, after in pairs)
    p = mcnemar(lost, gained).mid_p
    return PairedShares(
        items=len(pairs),
        original=sum(original) / len(pairs),
        quantized=sum(quantized) / len(pairs),
        lost=lost,
        gained=gained,
        difference=difference_of_shares(gained, lost, len(pairs)),
        p=p,
        p_corrected=p,
    )


def corrected(compared: Sequence[PairedShares]) -> list[PairedShares]:
    """The same, with p corrected for the number of comparisons."""
    if not compared:
        return []
    adjusted = benjamini_hochberg([one.p for one in compared])
    return [one.model_copy(update={"p_corrected": float(p)}) for one, p in zip(compared, adjusted, strict=True)]


def paired_means(original: Sequence[float], quantized: Sequence[float]) -> PairedMeans:
    """From the number of each item, in the same order."""
    before, after = np.asarray(original, dtype=float), np.asarray(quantized, dtype=float)
    if before.shape != after.shape or not len(before):
        raise ValueError("there must be as many numbers before as after, and at least one")
    differences = after - before
    value, items = float(differences.mean()), len(differences)
    estimate = None
    if items > 1:
        error = float(differences.std(ddof=1)) / np.sqrt(items)
        margin = float(stats.t.ppf(1 - TAIL, items - 1)) * error
        estimate = Estimate(value=value, low=value - margin, high=value + margin)
    return PairedMeans(items=items, original=float(before.mean()), quantized=float(after.mean()), difference=estimate)


def difference_of_shares(gained: int, lost: int, items: int) -> Estimate:
    """(gained − lost)/n of paired items with Bonett and Price's interval (2012, Br J Math Stat Psychol 65): Wald's after one item is added to
    `gained` and one to `lost`, d ± z·√((g + l − d²)/(n + 2)) with g = (gained + 1)/(n + 2), l = (lost + 1)/(n + 2) and d = g − l.

    Its coverage is near 95 % from some ten items on (Fagerland, Lydersen & Laake 2014).
    """
    value = (gained - lost) / items
    plus, minus = (gained + 1) / (items + 2), (lost + 1) / (items + 2)
    shifted = plus - minus
    margin = float(stats.norm.ppf(1 - TAIL)) * float(np.sqrt((plus + minus - shifted**2) / (items + 2)))
    return Estimate(
        value=value, low=min(value, max(-1.0, shifted - margin)), high=max(value, min(1.0, shifted + margin))
    )


def share(count: int, items: int) -> Estimate:
    """count/n with Wilson's score interval (1927), which covers near 95 % even for shares near 0 and 1."""
    interval = stats.binomtest(count, items).proportion_ci(1 - 2 * TAIL, method="wilson")
    value = count / items
    return Estimate(value=value, low=min(value, float(interval.low)), high=max(value, float(interval.high)))
