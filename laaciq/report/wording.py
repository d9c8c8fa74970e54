"""What a report says, in words and numbers, once for every format. Plain text: each format escapes it in its own way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from laaciq.evaluation.degradation import COLLAPSE_FACTOR
from laaciq.evaluation.results import Disparity, Estimate, Evaluation, LanguageResult
from laaciq.evaluation.verdict import percent
from laaciq.planning.results import Planning
from laaciq.quantization.plan import PlanSet

TITLE = "What quantization costs each language"
MEASURES = {"degradation": "degradation D", "relative_bits": "relative bits", "bits_per_passage": "bits per passage"}
ABSENT = "–"
# Of a run that planned: what is measured beside it.
USUAL = "Today's default"
EXPLANATION = (
    "The theory expects languages that lean on blocks of heavy-tailed weights (high κ_eff) to lose otherwise than others. "
    "These plots show what is in this model; whether they explain the losses is for the eye to judge, and for 'laaciq screen' to predict."
)


class Fact(NamedTuple):
    """`verbatim` values are names that the user gave."""

    label: str
    value: str
    verbatim: bool = False


class Column(NamedTuple):
    """One column of the table by language. `measure` is set where the column shows one of `MEASURES`."""

    heading: str
    cell: Callable[[LanguageResult], str]
    measure: str | None = None
    numeric: bool = True


def number(value: float, decimals: int = 1) -> str:
    # z: a small loss below zero is 0.0, not -0.0.
    return f"{value:z,.{decimals}f}" if math.isfinite(value) else ABSENT


def percent_estimate(estimate: Estimate) -> str:
    """`3.2 % [2.8, 3.7]`."""
    return _with_bounds(percent(estimate.value), 100 * estimate.low, 100 * estimate.high)


def bits_estimate(estimate: Estimate) -> str:
    return _with_bounds(number(estimate.value), estimate.low, estimate.high)


def _with_bounds(value: str, low: float, high: float) -> str:
    return value if value == ABSENT else f"{value} [{number(low)}, {number(high)}]"


def byte_size(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{number(size / scale)} {unit}"
    return f"{size} bytes"


def facts(evaluation: Evaluation, plans: PlanSet | None) -> list[Fact]:
    """What was compared."""
    kind = "parallel texts: the same content in every language" if evaluation.parallel else "texts are not parallel"
    found = [
        Fact("Original", evaluation.original, verbatim=True),
        Fact("Quantized", evaluation.quantized, verbatim=True),
        Fact("Texts", evaluation.texts, verbatim=True),
        Fact("Languages", f"{len(evaluation.languages)} ({kind})"),
    ]
    if plans is None:
        return found
    plan, size = plans.first, plans.first.size
    bits = (
        f"{number(size.block_bits_per_weight, 2)} in the linear layers of the blocks, {number(size.model_bits_per_weight, 2)} "
        "over the whole model (counted in full: codes, scales, zero points, tables, kept weights, and all that is not quantized)"
    )
    shrunk = (
        f"{byte_size(size.model_bytes)} instead of {byte_size(size.original_model_bytes)}, "
        f"{number(size.compression)} times smaller"
    )
    found += [Fact("Method", plan.method, verbatim=True), Fact("Bits a weight", bits), Fact("Size", shrunk)]
    if plan.tables:
        clusters = "; ".join(" ".join(members) for members in plan.tables)
        found.append(Fact("Languages with scales in common", clusters))
    if len(plans.plans) > 1:
        found.append(Fact("Checkpoints", f"{len(plans.plans)}, {byte_size(plans.total_bytes)} in all"))
    return found


def columns(evaluation: Evaluation, baseline: Evaluation | None = None) -> list[Column]:
    """`baseline` adds what today's default costs each language."""
    usual = [] if baseline is None else [Column(f"{USUAL}, D", lambda r: _degradation(baseline[r.language]))]
    bits_per_passage = Column("Bits per passage", _bits_per_passage, "bits_per_passage")
    return [
        Column("Language", lambda r: f"{r.name} ({r.language})", numeric=False),
        Column("Script", lambda r: r.script, numeric=False),
        Column("Degradation D", _degradation, "degradation"),
        *usual,
        Column("Relative bits", _relative_bits, "relative_bits"),
        *([bits_per_passage] if evaluation.parallel else []),
        Column("Bits per byte, original", lambda r: number(r.original.bits_per_byte, 3)),
        Column("Bits per byte, quantized", lambda r: number(r.quantized.bits_per_byte, 3)),
        Column("KL per token", lambda r: number(r.kl_per_token, 3)),
        Column("Same top token", lambda r: percent(r.top_agreement)),
        Column("Passages", lambda r: f"{r.passages:,}"),
        Column("Note", _note, numeric=False),
    ]


def _degradation(result: LanguageResult) -> str:
    return "collapsed" if result.degradation is None else _with_interval(result, result.degradation, percent_estimate)


def _relative_bits(result: LanguageResult) -> str:
    # Of a collapsed language no ratio is quoted.
    return ABSENT if result.collapsed else _with_interval(result, result.relative_bits, percent_estimate)


def _bits_per_passage(result: LanguageResult) -> str:
    estimate = result.bits_per_passage
    return ABSENT if estimate is None else _with_interval(result, estimate, bits_estimate)


def _with_interval(result: LanguageResult, estimate: Estimate, shown: Callable[[Estimate], str]) -> str:
    # One document has no spread, and so no interval.
    return shown(estimate) if result.documents > 1 else shown(estimate).partition(" [")[0]


def _note(result: LanguageResult) -> str:
    if not result.served:
        return "not served"
    if result.collapsed:
        return "collapsed"
    return "" if result.hurt else "no loss beyond noise"


def table_caption(evaluation: Evaluation) -> str:
    caption = "Worst first, with 95 % intervals."
    if evaluation.summary.not_served:
        caption += (
            " Languages that are not served by the original model stand at the end and count in nothing else here."
        )
    return caption


def disparity_sentences(evaluation: Evaluation) -> list[str]:
    """How unequally the languages pay, in plain words."""
    said = [_collapsed(evaluation), *_spread(evaluation), _worst_quarter(evaluation), *_shares(evaluation)]
    return [sentence for sentence in said if sentence]


def _collapsed(evaluation: Evaluation) -> str:
    names = _names(evaluation, evaluation.summary.collapsed)
    return f"Collapsed, and left out of what follows about disparity: {names}." if names else ""


def _spread(evaluation: Evaluation) -> list[str]:
    disparity = evaluation.disparity
    if disparity is None:
        return ["Disparity needs at least two languages that are served and did not collapse, so none is given."]
    worst, best = (_names(evaluation, [code]) for code in (disparity.worst_language, disparity.best_language))
    return [
        f"Disparity, the largest D minus the smallest, is {percent_estimate(disparity.plug_in)}: {worst} against {best}.",
        f"Languages that all lose the same would show up to {percent(disparity.noise_floor)} through noise alone "
        f"(the noise floor), so {_judgement(disparity)}.",
        "Picking extremes among noisy values exaggerates; with worst and best picked on one half of the documents and "
        f"measured on the other, the disparity is {percent(disparity.cross_fitted)} (cross-fitted), and the worst language "
        f"so picked loses {percent(disparity.cross_fitted_worst)}.",
        f"With noise taken off, D varies between languages with a standard deviation τ of {percent(disparity.between_deviation)}; "
        f"the test of whether all languages lose the same (heterogeneity) gives p {_p_value(disparity.heterogeneity_p)}.",
    ]


def _judgement(disparity: Disparity) -> str:
    return "this disparity is beyond noise" if disparity.beyond_noise else "no disparity is found"


def _p_value(p: float) -> str:
    return "below 0.001" if p < 0.001 else f"= {number(p, 3)}"


def _worst_quarter(evaluation: Evaluation) -> str:
    if evaluation.disparity is None:
        return ""
    summary = evaluation.summary
    names = _names(evaluation, summary.worst_quarter_languages)
    return f"The worst quarter of the languages ({names}) loses {percent(summary.worst_quarter)} taken together."


def _shares(evaluation: Evaluation) -> list[str]:
    served = [r for r in evaluation.languages if r.served]
    if not served:
        return []
    summary = evaluation.summary
    hurt = f"{sum(r.hurt for r in served)} of {len(served)} that are served ({percent(summary.hurt_share)})"
    said = [f"Languages hurt beyond noise: {hurt}."]
    if summary.half_loss_passage_share is not None:
        said.append(f"Half of all their loss falls on {percent(summary.half_loss_passage_share)} of the passages.")
    return said


def disagreement(evaluation: Evaluation) -> str | None:
    """Where the rankings name different worst languages, a sentence that says so."""
    summary = evaluation.summary
    if summary.rankings_agree:
        return None
    named: dict[str, list[str]] = {}
    for measure, code in summary.worst_by.items():
        named.setdefault(_names(evaluation, [code]), []).append(MEASURES[measure])
    who = ", ".join(f"{name} by {' and '.join(measures)}" for name, measures in named.items())
    sentence = f"The measures disagree on which language pays most: {who}."
    if evaluation.disparity and not evaluation.disparity.beyond_noise:
        sentence += " As the differences in D lie within noise, little should be read into its order."
    return sentence


def definitions(evaluation: Evaluation) -> list[tuple[str, str]]:
    degradation = "Relative increase in perplexity, exp(ΔNLL per token) − 1. Means are taken over ΔNLL, never over D."
    relative = "Relative increase in bits per byte, ΔNLL / NLL. It flatters languages that the original models badly."
    passage = "Bits that the same passage costs more than before. It compares like with like; on parallel text only."
    bound = f"The original needs more than {number(evaluation.served_bound)} bits per byte: there is little to lose."
    collapsed = f"The quantized perplexity is more than {COLLAPSE_FACTOR} times the original's; no ratio is quoted."
    hurt = "The 95 % interval (bootstrap over documents) lies above zero, judged language by language."
    return [
        ("Degradation D", degradation),
        ("Relative bits", relative),
        ("Bits per passage", passage),
        ("Not served", bound),
        ("Collapsed", collapsed),
        ("Hurt beyond noise", hurt),
    ]


def usual_sentence(evaluation: Evaluation, baseline: Evaluation) -> str:
    """What the worst-off language pays here and under today's default of the same size."""
    if not (evaluation.judged and baseline.judged):
        return f"{USUAL} ({baseline.quantized}): {baseline.verdict}"
    fallen = f"; {len(baseline.summary.collapsed)} languages collapsed there" if baseline.summary.collapsed else ""
    return (
        f"{USUAL}, {baseline.quantized}, costs the worst-off language {_worst_and_mean(baseline)}; "
        f"this plan {_worst_and_mean(evaluation)}{fallen}."
    )


def _worst_and_mean(evaluation: Evaluation) -> str:
    worst = evaluation.judged[0]
    return f"{percent(math.expm1(worst.loss.value))} ({worst.name}) and the mean {percent(evaluation.summary.mean)}"


def planning_sentences(planning: Planning) -> list[str]:
    """How the plan was found."""
    best, agreement = planning.rounds[planning.chosen], planning.agreement
    worst = max(range(len(planning.languages)), key=lambda i: best.losses[i])
    said = [
        f"Bits were allocated for the objective '{planning.objective}' to within {100 * planning.gap:.1f} % of the optimum of the sensitivity "
        f"model. Over languages and the plans it was put to scale by ({len(planning.probes)}), predicted and measured losses have r = "
        f"{number(agreement.r, 2)} and a median error of {percent(agreement.error)}.",
        f"Of {len(planning.rounds)} plans measured on validation text, number {planning.chosen + 1} was best; there the worst-off language, "
        f"{planning.languages[worst]}, lost {number(best.losses[worst], 3)} nats a token. Test text decided nothing.",
    ]
    if planning.held_out:
        said.append(f"Planned without seeing {', '.join(planning.held_out)}.")
    return said


def _names(evaluation: Evaluation, codes: list[str]) -> str:
    return ", ".join(evaluation[code].name for code in codes)
