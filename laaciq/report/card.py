"""A model card: what was made, what it costs each language, and how it was found out. The theory asks every quantized model to report
degradation by language, disparity, outlier blocks and bit widths; they stand in the section on fairness."""

from __future__ import annotations

from dataclasses import dataclass

from huggingface_hub import ModelCardData

from laaciq.evaluation.results import Evaluation
from laaciq.options import BUILTIN
from laaciq.planning.results import Planning
from laaciq.profiling.results import Profile
from laaciq.quantization.plan import Plan, PlanSet
from laaciq.report import wording
from laaciq.report.markdown import code_block, code_span, escaped, facts_list, language_table, table
from laaciq.report.storage import storage_rows

_CLASSES = {
    "causal": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "encoder-decoder": "AutoModelForSeq2SeqLM",
}


@dataclass(frozen=True)
class CardContents:
    """What a finished run knows. `command` makes the model again, with this `version` of laaciq."""

    name: str
    evaluation: Evaluation
    plans: PlanSet
    planning: Planning | None
    baseline: Evaluation | None
    profile: Profile
    command: str
    version: str


def model_card(found: CardContents, head: ModelCardData) -> str:
    evaluation = found.evaluation
    disagreement = wording.disagreement(evaluation)
    parts = [
        f"---\n{head.to_yaml()}\n---",
        f"# {escaped(found.name)}",
        f"{code_span(evaluation.original)}, quantized by laaciq. **{escaped(evaluation.verdict)}**",
        facts_list(evaluation, found.plans),
        "## How to load it",
        *_loading(found),
        "## Fairness: what quantization costs each language",
        *([escaped(wording.usual_sentence(evaluation, found.baseline))] if found.baseline else []),
        "### Degradation by language",
        language_table(evaluation, found.baseline),
        escaped(wording.table_caption(evaluation)),
        "### Disparity",
        escaped(" ".join([*_worst(evaluation), *wording.disparity_sentences(evaluation)])),
        *([escaped(disagreement)] if disagreement else []),
        "### Outlier blocks",
        escaped(_outliers(found.profile)),
        "### Bit widths",
        *_storage(found),
        "## Texts",
        _calibration(found),
        _test(evaluation),
        "## Limits",
        "\n".join(f"- {escaped(limit)}" for limit in _limits(found)),
        "## Definitions",
        "\n".join(f"- **{term}**: {escaped(meaning)}" for term, meaning in wording.definitions(evaluation)),
        "## Make it again",
        f"With laaciq {escaped(found.version)}:",
        code_block(found.command),
    ]
    return "\n\n".join(parts) + "\n"


def _loading(found: CardContents) -> list[str]:
    plan, names = found.plans.first, [name for name in found.plans.plans if name]
    auto = _CLASSES[found.profile.architecture.kind]
    folder = f', subfolder="{names[0]}"' if names else ""
    lines = [
        "import laaciq  # lets transformers load the checkpoint",
        f"from transformers import {auto}, AutoTokenizer",
        "",
        f'model = {auto}.from_pretrained("{found.name}"{folder})',
        f'tokenizer = AutoTokenizer.from_pretrained("{found.name}"{folder})',
    ]
    if plan.tables:
        code = plan.tables[0][0]
        lines += ["", f'with model.language("{code}"):  # the scales that {code} was given', "    ..."]
    more = [f"There is a checkpoint, in a folder of that name, for each of: {', '.join(names)}."] if names else []
    return [code_block("\n".join(lines), "python"), *map(escaped, more)]


def _worst(evaluation: Evaluation) -> list[str]:
    """Who pays most, and who is in none of the figures."""
    said = []
    if evaluation.judged:
        worst = evaluation.judged[0]
        cost = wording.ABSENT if worst.degradation is None else wording.percent_estimate(worst.degradation)
        said.append(f"The worst-off language is {worst.name}, with D = {cost}.")
    if outside := evaluation.summary.not_served:
        names = ", ".join(evaluation[code].name for code in outside)
        said.append(f"Not served by the original, and counted in nothing: {names}.")
    return said


def _outliers(profile: Profile) -> str:
    heaviest = max(profile.blocks, key=lambda block: block.kurtosis)
    bound = f"{profile.outlier_kurtosis:g}"
    peak = f"the heaviest tails are those of block {heaviest.block}, with κ = {wording.number(heaviest.kurtosis, 2)}"
    if not profile.outlier_blocks:
        return f"None of {len(profile.blocks)} blocks has weights of excess kurtosis κ above {bound}; {peak}."
    own = ", ".join(f"{b.block} (κ = {wording.number(b.kurtosis)})" for b in profile.blocks if b.outlier)
    most = max(profile.languages, key=lambda language: language.outlier_fraction)
    least = min(profile.languages, key=lambda language: language.outlier_fraction)
    return (
        f"Blocks whose weights have an excess kurtosis κ above {bound}: {own}. Their share of a language's activations, R̂, goes from "
        f"{wording.percent(least.outlier_fraction)} ({least.language}) to {wording.percent(most.outlier_fraction)} ({most.language})."
    )


def _storage(found: CardContents) -> list[str]:
    plan = found.plans.first
    rows = [
        [", ".join(row.kinds), row.stored, wording.number(row.bits_per_weight, 2)]
        for row in storage_rows(plan, [block.name for block in found.profile.blocks])
    ]
    said = [
        "All else stays in 16 bits, embeddings and head too."
        if not plan.token_matrices
        else "All else stays in 16 bits."
    ]
    if len(found.plans.plans) > 1:
        said.insert(
            0, f"Of the first checkpoint, {next(iter(found.plans.plans))}; the others are planned in the same way."
        )
    said += (
        [f"Scales, norms and biases were tuned for {plan.tuned} epochs towards the original's predictions."]
        if plan.tuned
        else []
    )
    said += wording.planning_sentences(found.planning) if found.planning else []
    return [
        table(["Tensors", "Stored as", "Bits a weight, in full"], rows, numeric=[False, False, True]),
        escaped(" ".join(said)),
    ]


def _calibration(found: CardContents) -> str:
    plan = found.plans.first
    if not plan.weights:
        return "**Calibration text**: none; the grids follow from the weights alone."
    most = f", at most {plan.passages} passages a language" if plan.passages else ""
    return (
        f"**Calibration text**: the calibration part of {code_span(found.evaluation.texts)}{most}, "
        f"in {len(plan.weights)} language{'s' * (len(plan.weights) > 1)}: {escaped(_weights(plan))}."
    )


def _weights(plan: Plan) -> str:
    codes = ", ".join(plan.weights)
    if len({round(weight, 6) for weight in plan.weights.values()}) == 1:
        return codes + (", counted equally" if len(plan.weights) > 1 else "")
    shares = sorted(plan.weights.items(), key=lambda pair: -pair[1])
    return "counted as " + ", ".join(f"{code} {wording.percent(weight)}" for code, weight in shares)


def _test(evaluation: Evaluation) -> str:
    counts = [result.passages for result in evaluation.languages]
    passages = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    kind = "the same content in every language" if evaluation.parallel else "not parallel"
    return (
        f"**Test text**: the test part of {code_span(evaluation.texts)}, {passages} passages a language, "
        f"{len(evaluation.languages)} languages, {kind}. It shares no passage with the calibration text, and decided nothing."
    )


def _limits(found: CardContents) -> list[str]:
    evaluation = found.evaluation
    said = [
        "What is measured is how well the model predicts the test text; tasks, long answers, safety and other domains may lose more or less.",
        "Nothing is known of languages that are not in the table.",
        "Weights alone are quantized; activations and the key-value cache are not.",
        "Whatever the original is not good for, this model is not good for either.",
    ]
    if evaluation.texts == BUILTIN:
        said.append("The built-in texts were translated by a language model, and no native speaker has checked them.")
    if len(found.plans.first.weights) == 1:
        said.append(f"Only {found.plans.first.languages[0]} had a say in calibration.")
    return said
