"""The sentences and numbers of all reports, as plain text; each format escapes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from laaciq.engine.environment import environment_words
from laaciq.evaluation.degradation import COLLAPSE_FACTOR
from laaciq.evaluation.results import Estimate, Evaluation, LanguageResult
from laaciq.evaluation.spread import Spread
from laaciq.evaluation.verdict import percent, percent_estimate, rough_intervals
from laaciq.planning.results import Planning
from laaciq.planning.screening import Screening
from laaciq.profiling.results import Profile
from laaciq.quantization.plan import PlanSet
from laaciq.report.numbers import ABSENT, bits_estimate, byte_size, number

TITLE = "What quantization costs each language"
MEASURES = {"degradation": "degradation D", "relative_bits": "relative bits", "bits_per_passage": "bits per passage"}
# Measured beside a plan, at the same size.
BASELINE = "baseline (GPTQ, calibrated on English)"
EXPLANATION = (
    "The theory expects the loss of a language to depend on how much it uses blocks with heavy-tailed weights (high κ). These plots show "
    "this model; they do not prove a cause. 'laaciq screen' prints what the theory predicts."
)


class Fact(NamedTuple):
    """One line about what was compared. A `verbatim` value is a name and printed unchanged."""

    label: str
    value: str
    verbatim: bool = False


class ResultColumn(NamedTuple):
    """A column of the table by language. `measure` is its key in `MEASURES`, if any."""

    heading: str
    cell: Callable[[LanguageResult], str]
    measure: str | None = None
    numeric: bool = True


def facts(evaluation: Evaluation, plans: PlanSet | None) -> list[Fact]:
    """What was compared, line by line."""
    kind = "parallel texts: the same content in every language" if evaluation.parallel else "texts are not parallel"
    lines = [
        Fact("Original", evaluation.original, verbatim=True),
        Fact("Quantized", evaluation.quantized, verbatim=True),
        Fact("Texts", evaluation.texts, verbatim=True),
        Fact("Languages", f"{len(evaluation.languages)} ({kind})"),
    ]
    if plans is None:
        return lines
    plan, size = plans.first, plans.first.size
    bits = (
        f"{number(size.block_bits_per_weight, 2)} in the blocks, {number(size.model_bits_per_weight, 2)} "
        "over the whole model (codes, scales, zero points, tables, kept weights and unquantized tensors all counted)"
    )
    smaller = (
        f"{byte_size(size.model_bytes)} instead of {byte_size(size.original_model_bytes)}, "
        f"{number(size.compression)} times smaller"
    )
    lines += [Fact("Method", plan.method, verbatim=True), Fact("Bits per weight", bits), Fact("Size", smaller)]
    if plan.tables:
        clusters = "; ".join(" ".join(members) for members in plan.tables)
        lines.append(Fact("Languages that share scales", clusters))
    if len(plans.plans) > 1:
        lines.append(Fact("Checkpoints", f"{len(plans.plans)}, {byte_size(plans.total_bytes)} in all"))
    return lines


def columns(evaluation: Evaluation, baseline: Evaluation | None = None) -> list[ResultColumn]:
    """The columns of the table by language; `baseline` adds its D."""
    beside = [] if baseline is None else [ResultColumn("Baseline D", lambda r: _degradation(baseline[r.language]))]
    bits_per_passage = ResultColumn("Bits per passage", _bits_per_passage, "bits_per_passage")
    return [
        ResultColumn("Language", lambda r: f"{r.name} ({r.language})", numeric=False),
        ResultColumn("Script", lambda r: r.script, numeric=False),
        ResultColumn("Degradation D", _degradation, "degradation"),
        *beside,
        ResultColumn("Relative bits", _relative_bits, "relative_bits"),
        *([bits_per_passage] if evaluation.parallel else []),
        ResultColumn("Bits per byte, original", lambda r: number(r.original.bits_per_byte, 3)),
        ResultColumn("Bits per byte, quantized", lambda r: number(r.quantized.bits_per_byte, 3)),
        ResultColumn("KL per token", lambda r: number(r.kl_per_token, 3)),
        ResultColumn("Same top token", lambda r: percent(r.top_agreement)),
        ResultColumn("Passages", lambda r: f"{r.passages:,}"),
        ResultColumn("Note", _note, numeric=False),
    ]


def _degradation(result: LanguageResult) -> str:
    return "collapsed" if result.degradation is None else _with_interval(result, result.degradation, percent_estimate)


def _relative_bits(result: LanguageResult) -> str:
    return ABSENT if result.collapsed else _with_interval(result, result.relative_bits, percent_estimate)


def _bits_per_passage(result: LanguageResult) -> str:
    estimate = result.bits_per_passage
    return ABSENT if estimate is None else _with_interval(result, estimate, bits_estimate)


def _with_interval(result: LanguageResult, estimate: Estimate, shown: Callable[[Estimate], str]) -> str:
    # One document has no variance, and so no interval.
    return shown(estimate) if result.documents > 1 else shown(estimate).partition(" [")[0]


def _note(result: LanguageResult) -> str:
    if not result.served:
        return "not served"
    if result.collapsed:
        return "collapsed"
    if not result.hurt:
        return "no loss beyond noise"
    return "" if result.hurt_corrected else "hurt, not after correction"


def table_caption(evaluation: Evaluation) -> str:
    caption = "Worst first, with 95 % intervals."
    if rough := rough_intervals(evaluation.fewest_documents):
        caption += f" {rough}"
    if evaluation.summary.not_served:
        caption += " Languages that the original does not serve come last and are left out of all figures."
    return caption


def disparity_sentences(evaluation: Evaluation) -> list[str]:
    """How unequal the losses are: the estimate, its interval, and the verdict."""
    sentences = []
    if names := _names(evaluation, evaluation.summary.collapsed):
        sentences.append(f"Collapsed, and not counted in the disparity: {names}.")
    return sentences + _spread(evaluation) + _hurt(evaluation)


def _spread(evaluation: Evaluation) -> list[str]:
    disparity, summary = evaluation.disparity, evaluation.summary
    if disparity is None:
        return ["Disparity needs at least two languages that are served and did not collapse; here there are fewer."]
    worst, best = (_names(evaluation, [code]) for code in (disparity.worst_language, disparity.best_language))
    judgement = "this disparity is" if disparity.beyond_noise else "no difference between languages is"
    quarter = _names(evaluation, summary.worst_quarter_languages)
    return [
        f"Disparity, the largest D minus the smallest, is {percent_estimate(disparity.plug_in)}: {worst} against {best}.",
        f"The noise floor, the disparity that languages with equal losses would show by chance, is {percent(disparity.noise_floor)}: "
        f"{judgement} beyond noise.",
        f"The worst quarter of the languages ({quarter}) loses {percent(summary.worst_quarter)} on average.",
    ]


def _hurt(evaluation: Evaluation) -> list[str]:
    served = [r for r in evaluation.languages if r.served]
    if not served:
        return []
    share, corrected = percent(evaluation.summary.hurt_share), percent(evaluation.summary.hurt_corrected_share)
    return [
        f"Languages hurt beyond noise: {sum(r.hurt for r in served)} of the {len(served)} that are served ({share}), each judged alone; "
        f"{sum(r.hurt_corrected for r in served)} ({corrected}) after Benjamini and Hochberg's correction for their number."
    ]


def disparity_details(evaluation: Evaluation) -> list[str]:
    """Further statistics on the disparity."""
    disparity, share = evaluation.disparity, evaluation.summary.half_loss_passage_share
    sentences = []
    if disparity is not None:
        sentences += [
            "The largest and the smallest of noisy values exaggerate the disparity. With worst and best language chosen on one half of the "
            f"documents and measured on the other (cross-fitted), it is {percent(disparity.cross_fitted)}, and the worst language loses "
            f"{percent(disparity.cross_fitted_worst)}.",
            f"The standard deviation τ of D between languages, without noise, is {percent(disparity.between_deviation)}. The test that all "
            f"languages lose the same (heterogeneity) gives p {_p_value(disparity.heterogeneity_p)}.",
        ]
    if share is not None:
        sentences.append(f"Half of the total loss falls on {percent(share)} of the passages.")
    return sentences


def _p_value(p: float) -> str:
    return "below 0.001" if p < 0.001 else f"= {number(p, 3)}"


def disagreement(evaluation: Evaluation) -> str | None:
    """A sentence if the measures name different worst languages; None otherwise."""
    summary = evaluation.summary
    if summary.rankings_agree:
        return None
    by_name: dict[str, list[str]] = {}
    for measure, code in summary.worst_by.items():
        by_name.setdefault(_names(evaluation, [code]), []).append(MEASURES[measure])
    who = ", ".join(f"{name} by {' and '.join(measures)}" for name, measures in by_name.items())
    sentence = f"The measures disagree on which language pays most: {who}."
    if evaluation.disparity and not evaluation.disparity.beyond_noise:
        sentence += " Differences in D are within noise, so their order means little."
    return sentence


def definitions(evaluation: Evaluation) -> list[tuple[str, str]]:
    return [
        (
            "Degradation D",
            "Relative increase in perplexity, exp(ΔNLL per token) − 1. Means are taken over ΔNLL, not over D.",
        ),
        (
            "Relative bits",
            "Relative increase in bits per byte, ΔNLL / NLL. It understates losses in languages that the original models badly.",
        ),
        (
            "Bits per passage",
            "Additional bits for the same passage. Comparable between languages, and given for parallel text only.",
        ),
        (
            "Not served",
            f"The original needs more than {number(evaluation.served_bound)} bits per byte. It is shown but left out of all figures.",
        ),
        (
            "Collapsed",
            f"The perplexity of the quantized model is more than {COLLAPSE_FACTOR} times that of the original. No ratio is given.",
        ),
        (
            "Hurt beyond noise",
            "The 95 % interval of the loss lies above zero, judged for each language alone. Of many languages without a loss, 2.5 % come out "
            "so. After Benjamini and Hochberg's correction, the expected share of such languages among those that remain is below 5 %.",
        ),
        (
            "Intervals of the worst loss and the disparity",
            "They allow for the choice of the extreme languages, and contained the true value in 93 % or more of simulated cases. If many "
            "languages lose about the same, they are wider than they would have to be.",
        ),
    ]


def baseline_sentence(evaluation: Evaluation, baseline: Evaluation) -> str:
    """The worst-off language and the mean loss, with the baseline and with this plan."""
    with_baseline, with_plan = _worst_off(baseline), _worst_off(evaluation)
    sentence = f"With the baseline ({baseline.quantized}) {with_baseline}; with this plan {with_plan}."
    # A mean without the collapsed languages would look too good.
    if baseline.summary.collapsed or evaluation.summary.collapsed or evaluation.summary.mean is None:
        return sentence
    return f"{sentence} The mean loss is {percent(baseline.summary.mean)} and {percent(evaluation.summary.mean)}."


def spread_sentence(spread: Spread) -> str:
    """How much losses vary with the draw of calibration text. Intervals cover only the test passages."""

    def between(values: list[float | None]) -> str:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return "a collapsed language in some draw"
        return f"{percent(min(known))} to {percent(max(known))}"

    return (
        f"Over {spread.draws} draws of calibration text the worst-off language loses {between(spread.worst)}, "
        f"the mean is {between(spread.mean)}, and disparity is {between(spread.disparity)}. "
        "The intervals above cover only the choice of test passages."
    )


def _worst_off(evaluation: Evaluation) -> str:
    if collapsed := evaluation.summary.collapsed:
        return f"{_names(evaluation, collapsed)} collapse{'s' * (len(collapsed) == 1)}"
    if not evaluation.judged:
        return "no language is served"
    worst = evaluation.judged[0]
    return f"the worst-off language, {worst.name}, loses {percent(math.expm1(worst.loss.value))}"


def planning_sentences(planning: Planning) -> list[str]:
    """How the plan was made, in sentences."""
    best, agreement = planning.rounds[planning.chosen], planning.agreement
    worst = max(range(len(planning.languages)), key=lambda i: best.losses[i])
    probes = "the plan" if len(planning.probes) == 1 else f"the {len(planning.probes)} plans"
    r = "" if agreement.r is None else f"r = {number(agreement.r, 2)} on a logarithmic scale and "
    sentences = [
        f"Bits were allocated to within {100 * planning.gap:.1f} % of the optimum of the sensitivity model, for the objective "
        f"'{planning.objective}'. Over languages and {probes} that rescaled its predictions, predicted and measured "
        f"losses have {r}a median error of {percent(agreement.error)}.",
        f"Of {len(planning.rounds)} plan{'s' * (len(planning.rounds) > 1)} measured on validation text, number {planning.chosen + 1} "
        f"was best: its worst-off language, {planning.languages[worst]}, lost {number(best.losses[worst], 3)} nats per token. "
        "Test text was not used.",
    ]
    if planning.timed_out:
        sentences.append(
            "The solver was stopped by its time limit. On a faster or less busy machine, the same command may give another plan."
        )
    if planning.held_out:
        sentences.append(f"Planning read no text in {', '.join(planning.held_out)}.")
    return sentences


def prediction_sentence(screening: Screening) -> str:
    """The theory's prediction. If it depends on how languages use outlier blocks, a few passages are not enough."""
    outliers, _, coarse = screening.conditions
    if screening.sampled and outliers.answer and coarse.answer:
        return (
            "Predicted: nothing yet. There are outlier blocks, and only a few passages per language were profiled. "
            "'laaciq screen' reads all calibration text."
        )
    return f"Predicted: {screening.risk}. {screening.prediction}"


def sampled_sentence(profile: Profile) -> str:
    """Why activations are not plotted."""
    most = max(language.passages for language in profile.languages)
    return (
        f"Activations are not plotted: this method profiles only {most} passages per language, too few to explain a loss. "
        "'laaciq profile' reads all calibration text."
    )


def environment_sentence(computed_with: Mapping[str, str]) -> str:
    """With what the figures repeat. Rounding carries a difference in a last digit on to every block that follows."""
    if computed_with.get("device", "").startswith("cpu"):
        repeated = "The same versions on the same kind of processor repeat these figures, with any number of threads. Elsewhere"
    else:
        repeated = "A GPU does not always add in the same order. Then"
    return (
        f"Computed with {environment_words(computed_with)}. {repeated} the last digits of sums differ, and with them perhaps the plan; "
        "--draws shows how far results move."
    )


def _names(evaluation: Evaluation, codes: list[str]) -> str:
    return ", ".join(evaluation[code].name for code in codes)
