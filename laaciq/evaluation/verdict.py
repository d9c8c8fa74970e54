"""The verdict on an evaluation, in one sentence."""

from __future__ import annotations

from laaciq.evaluation.results import Disparity, LanguageResult, Summary
from laaciq.stats.estimate import Estimate

# From here on intervals cover as docs/statistics.md says; with fewer documents it depends on how losses are distributed.
ENOUGH_DOCUMENTS = 10


def verdict(results: list[LanguageResult], disparity: Disparity | None, summary: Summary) -> str:
    """One sentence. The interval of the disparity alone decides whether languages differ beyond noise."""
    by_code = {r.language: r for r in results}
    if summary.collapsed:
        count = len(summary.collapsed)
        names = ", ".join(by_code[code].name for code in summary.collapsed)
        return f"{count} language{'s' * (count > 1)} collapsed: {names}."
    if disparity is None:
        alone = next((r for r in results if r.judged), None)
        if alone is None:
            return "The original model serves no language in these texts: there is nothing to lose."
        return f"{alone.name} loses {_degradation(alone)}; one language alone shows no disparity."
    spread = f"disparity {percent_estimate(disparity.plug_in)}"
    if not disparity.beyond_noise:
        return f"All languages lose about {percent(summary.mean)}; no difference between them beyond noise ({spread})."
    worst, best = by_code[disparity.worst_language], by_code[disparity.best_language]
    return (
        f"Languages differ beyond noise: {worst.name} pays most, {_degradation(worst)} against {_degradation(best)} "
        f"for {best.name} ({spread})."
    )


def rough_intervals(fewest: int) -> str | None:
    """A sentence of warning if the language with the fewest documents has too few for exact intervals; None otherwise."""
    if not 0 < fewest < ENOUGH_DOCUMENTS:
        return None
    return f"Intervals are rough: a language has {fewest} documents, and {ENOUGH_DOCUMENTS} or more are needed."


def percent(value: float | None) -> str:
    # z: a small loss below zero is 0.0, not -0.0.
    return "–" if value is None else f"{100 * value:z.1f} %"


def percent_estimate(estimate: Estimate) -> str:
    """`7.1 % [0.0, 9.4]`."""
    return f"{percent(estimate.value)} [{100 * estimate.low:z,.1f}, {100 * estimate.high:z,.1f}]"


def _degradation(result: LanguageResult) -> str:
    return percent(None if result.degradation is None else result.degradation.value)
