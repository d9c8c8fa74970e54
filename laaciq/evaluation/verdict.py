"""One sentence on an evaluation, for people who read only one."""

from __future__ import annotations

from laaciq.evaluation.results import Disparity, LanguageResult, Summary


def verdict(results: list[LanguageResult], disparity: Disparity | None, summary: Summary) -> str:
    by_code = {r.language: r for r in results}

    def name(code: str) -> str:
        return by_code[code].name

    if summary.collapsed:
        count = len(summary.collapsed)
        return f"{count} language{'s' * (count > 1)} collapsed: {', '.join(map(name, summary.collapsed))}."
    if disparity is None:
        alone = next((r for r in results if r.judged), None)
        if alone is None:
            return "No language is served by the original model: there is nothing to lose."
        return f"{alone.name} loses {_degradation(alone)}; one language alone shows no disparity."
    worst, best = by_code[disparity.worst_language], by_code[disparity.best_language]
    spread = f"disparity {percent(disparity.plug_in.value)}, noise floor {percent(disparity.noise_floor)}"
    if not disparity.beyond_noise:
        return f"All languages lose about {percent(summary.mean)}; no difference between them beyond noise ({spread})."
    return f"{worst.name} pays most, {_degradation(worst)} against {_degradation(best)} for {best.name} ({spread})."


def percent(value: float | None) -> str:
    # z: a small loss below zero is 0.0, not -0.0.
    return "–" if value is None else f"{100 * value:z.1f} %"


def _degradation(result: LanguageResult) -> str:
    return percent(None if result.degradation is None else result.degradation.value)
