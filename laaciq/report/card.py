"""A model card: what was made, what it costs each language, and how that was measured.

The theory recommends that every quantized model report degradation by language, disparity, outlier blocks and bit widths. The section on
fairness has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from huggingface_hub import ModelCardData

from laaciq.engine.escaping import (
    markdown_block,
    markdown_code,
    markdown_text,
    printable,
    python_text,
    yaml_text,
)
from laaciq.evaluation.results import Evaluation
from laaciq.evaluation.verdict import percent, percent_estimate
from laaciq.options import BUILTIN
from laaciq.planning.results import Planning
from laaciq.profiling.results import Profile
from laaciq.quantization.plan import Plan, PlanSet
from laaciq.report import wording
from laaciq.report.markdown import facts_list, folded, language_table, table
from laaciq.report.numbers import ABSENT, number
from laaciq.report.storage import storage_rows

_CLASSES = {
    "causal": "AutoModelForCausalLM",
    "masked": "AutoModelForMaskedLM",
    "encoder-decoder": "AutoModelForSeq2SeqLM",
}


@dataclass(frozen=True)
class CardContents:
    """The contents of a card, from a finished run. `command` is quoted for a shell and reproduces the model in this `environment`."""

    name: str
    evaluation: Evaluation
    plans: PlanSet
    planning: Planning | None
    baseline: Evaluation | None
    profile: Profile
    command: str
    environment: str


def model_card(contents: CardContents, head: ModelCardData) -> str:
    evaluation = contents.evaluation
    disagreement = wording.disagreement(evaluation)
    parts = [
        f"---\n{yaml_text(head.to_dict())}---",
        f"# {markdown_text(contents.name)}",
        f"{markdown_code(evaluation.original)}, quantized by laaciq. **{markdown_text(evaluation.verdict)}**",
        facts_list(evaluation, contents.plans),
        "## How to load it",
        *_loading(contents),
        "## Fairness: what quantization costs each language",
        *([markdown_text(wording.baseline_sentence(evaluation, contents.baseline))] if contents.baseline else []),
        "### Degradation by language",
        language_table(evaluation, contents.baseline),
        markdown_text(wording.table_caption(evaluation)),
        "### Disparity",
        markdown_text(" ".join([*_worst(evaluation), *wording.disparity_sentences(evaluation)])),
        *([markdown_text(disagreement)] if disagreement else []),
        *folded("More statistics", wording.disparity_details(evaluation)),
        "### Outlier blocks",
        markdown_text(_outliers(contents.profile)),
        "### Bit widths",
        *_storage(contents),
        "## Texts",
        _calibration(contents),
        _test(evaluation),
        "## Limits",
        "\n".join(f"- {markdown_text(limit)}" for limit in _limits(contents)),
        "## Definitions",
        "\n".join(f"- **{term}**: {markdown_text(meaning)}" for term, meaning in wording.definitions(evaluation)),
        "## Reproduce",
        f"With {markdown_text(contents.environment)}:",
        markdown_block(contents.command),
    ]
    return "\n\n".join(parts) + "\n"


def _loading(contents: CardContents) -> list[str]:
    plan, names = contents.plans.first, [name for name in contents.plans.plans if name]
    facts = contents.profile.architecture
    auto = "AutoModelForImageTextToText" if facts.multimodal else _CLASSES[facts.kind]
    folder = f", subfolder={python_text(names[0])}" if names else ""
    loaded = f"{python_text(contents.name)}{folder}"
    lines = [
        "import laaciq  # lets transformers load the checkpoint",
        f"from transformers import {auto}, AutoTokenizer",
        "",
        f"model = {auto}.from_pretrained({loaded})",
        f"tokenizer = AutoTokenizer.from_pretrained({loaded})",
    ]
    if plan.tables:
        code = plan.tables[0][0]
        lines += ["", f"with model.language({python_text(code)}):  # with the scales for {printable(code)}", "    ..."]
    more = (
        [f"Each of these languages has its checkpoint, in a folder of that name: {', '.join(names)}."] if names else []
    )
    return [markdown_block("\n".join(lines), "python"), *map(markdown_text, more)]


def _worst(evaluation: Evaluation) -> list[str]:
    """The language that loses most, and those that are not counted."""
    sentences = []
    # Languages that collapsed are named with the disparity.
    if evaluation.judged and not evaluation.summary.collapsed:
        worst = evaluation.judged[0]
        cost = ABSENT if evaluation.worst is None else percent_estimate(evaluation.worst)
        sentences.append(f"The worst-off language is {worst.name}; the largest D of any language is {cost}.")
    if outside := evaluation.summary.not_served:
        names = ", ".join(evaluation[code].name for code in outside)
        sentences.append(f"Not served by the original, and not counted: {names}.")
    return sentences


def _outliers(profile: Profile) -> str:
    heaviest = max(profile.blocks, key=lambda block: block.kurtosis)
    bound = f"{profile.outlier_kurtosis:g}"
    peak = f"block {heaviest.block} has the heaviest tails, with κ = {number(heaviest.kurtosis, 2)}"
    if not profile.outlier_blocks:
        return f"None of the {len(profile.blocks)} blocks has weights with an excess kurtosis κ above {bound}; {peak}."
    outliers = ", ".join(f"{b.block} (κ = {number(b.kurtosis)})" for b in profile.blocks if b.outlier)
    sentence = f"Blocks whose weights have an excess kurtosis κ above {bound}: {outliers}."
    if profile.sampled:
        # A few passages per language are too few for a share of activations.
        return sentence
    most = max(profile.languages, key=lambda language: language.outlier_fraction)
    least = min(profile.languages, key=lambda language: language.outlier_fraction)
    return (
        f"{sentence} Their share R̂ of a language's activations ranges from "
        f"{percent(least.outlier_fraction)} ({least.language}) to {percent(most.outlier_fraction)} ({most.language})."
    )


def _storage(contents: CardContents) -> list[str]:
    plan = contents.plans.first
    rows = [
        [", ".join(row.kinds), row.stored, number(row.bits_per_weight, 2)]
        for row in storage_rows(plan, [block.name for block in contents.profile.blocks])
    ]
    rest = "Everything else stays in 16 bits"
    sentences = [f"{rest}." if plan.token_matrices else f"{rest}, also embeddings and output head."]
    if len(contents.plans.plans) > 1:
        first = next(iter(contents.plans.plans))
        sentences.insert(0, f"This is the first checkpoint, {first}; the others are planned in the same way.")
    if plan.tuned:
        sentences.append(
            f"Scales, norms and biases were tuned for {plan.tuned} epochs towards the original's predictions."
        )
    sentences += wording.planning_sentences(contents.planning) if contents.planning else []
    return [
        table(["Tensors", "Stored as", "Bits per weight, in full"], rows, numeric=[False, False, True]),
        markdown_text(" ".join(sentences)),
    ]


def _calibration(contents: CardContents) -> str:
    plan = contents.plans.first
    if not plan.weights:
        return "**Calibration text**: none was read; the grids follow from the weights alone."
    most = f", at most {plan.passages} passages per language" if plan.passages else ""
    return (
        f"**Calibration text**: the calibration part of {markdown_code(contents.evaluation.texts)}{most}, "
        f"in {len(plan.weights)} language{'s' * (len(plan.weights) > 1)}: {markdown_text(_weights(plan))}."
    )


def _weights(plan: Plan) -> str:
    codes = ", ".join(plan.weights)
    if len({round(weight, 6) for weight in plan.weights.values()}) == 1:
        return codes + (", weighted equally" if len(plan.weights) > 1 else "")
    shares = sorted(plan.weights.items(), key=lambda pair: -pair[1])
    return "weighted " + ", ".join(f"{code} {percent(weight)}" for code, weight in shares)


def _test(evaluation: Evaluation) -> str:
    counts = [result.passages for result in evaluation.languages]
    passages = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    kind = "the same content in every language" if evaluation.parallel else "not parallel"
    return (
        f"**Test text**: the test part of {markdown_code(evaluation.texts)}, {passages} passages per language, "
        f"{len(evaluation.languages)} languages, {kind}. It shares no passage with the calibration text and decided nothing."
    )


def _limits(contents: CardContents) -> list[str]:
    evaluation = contents.evaluation
    limits = [
        "The measure is how well the model predicts the test text. Tasks, long answers, safety and other domains may lose more or less.",
        "Languages that are not in the table were not measured.",
        "Only weights are quantized, not activations or the key-value cache.",
        "The limits of the original are also those of this model.",
    ]
    if evaluation.texts == BUILTIN:
        limits.append("The built-in texts were translated by a language model, and no native speaker has checked them.")
    if len(contents.plans.first.weights) == 1:
        limits.append(f"Calibration read text in {contents.plans.first.languages[0]} only.")
    return limits
