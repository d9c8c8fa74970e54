"""The metadata of a model card, which the Hugging Face hub reads: above all a `model-index` with one result per language."""

from __future__ import annotations

import math
from pathlib import Path

import langcodes
from huggingface_hub import EvalResult, ModelCardData

from laaciq.corpus.named_sets import NAMED_SETS, is_named_set
from laaciq.evaluation.results import Estimate, Evaluation, LanguageResult
from laaciq.evaluation.verdict import percent_estimate
from laaciq.options import BUILTIN
from laaciq.report.numbers import number

TAGS = ["laaciq", "quantized", "multilingual"]
# The hub has no task for encoder-decoders any more.
PIPELINES = {"causal": "text-generation", "masked": "fill-mask", "encoder-decoder": "text-generation"}


def card_head(
    evaluation: Evaluation, *, kind: str, name: str, base_model: str | None, license: dict[str, str]
) -> ModelCardData:
    """The metadata as YAML. `license` holds the hub's `license`, and its name and link if that is `other`. Unknown entries are left out."""
    usable = [hub_language(result.language) for result in evaluation.judged]
    return ModelCardData(
        base_model=base_model,
        base_model_relation=None if base_model is None else "quantized",
        # This model does not support a language that collapsed or that the original does not serve.
        language=sorted(set(usable)) or None,
        library_name="transformers",
        pipeline_tag=PIPELINES[kind],
        tags=TAGS,
        model_name=name,
        eval_results=[row for result in evaluation.languages for row in _rows(result, evaluation, PIPELINES[kind])],
        **license,  # type: ignore[arg-type]
    )


def hub_language(code: str) -> str:
    """The code that the hub expects: ISO 639-1 if the language has one, else 639-3."""
    return langcodes.Language.get(code).language or code


def dataset_name(texts: str) -> str:
    """A name for the test text without folders of this machine."""
    if texts == BUILTIN:
        return "laaciq-builtin"
    if is_named_set(texts):
        return NAMED_SETS[texts.partition(":")[0]].repository
    return texts.removeprefix("datasets:").partition(":")[0] if texts.startswith("datasets:") else Path(texts).stem


def _rows(result: LanguageResult, evaluation: Evaluation, task: str) -> list[EvalResult]:
    """D with its interval, ΔNLL, and both perplexities; huggingface_hub joins those with the same task and dataset."""
    source = dataset_name(evaluation.texts)

    def row(metric: str, name: str, value: float, interval: Estimate | None = None) -> EvalResult:
        return EvalResult(
            task_type=task,
            dataset_type=source,
            dataset_name=f"{source}, {result.name}",
            dataset_config=result.language,
            dataset_split="test",
            metric_type=metric,
            metric_name=name,
            metric_value=value,
            metric_args=None if interval is None else {"low": interval.low, "high": interval.high, "confidence": 0.95},
        )

    rows = []
    # One document has no spread, and so no interval.
    spread = result.documents > 1
    if (loss := result.degradation) is not None:
        label = f"D, relative increase in perplexity: {percent_estimate(loss)}" if spread else "D"
        rows.append(row("degradation", label, loss.value, loss if spread else None))
    nats = result.loss
    label = "ΔNLL, nats per token"
    interval = f": {number(nats.value, 4)} [{number(nats.low, 4)}, {number(nats.high, 4)}]"
    rows.append(row("delta_nll", f"{label}{interval if spread else ''}", nats.value, nats if spread else None))
    rows.append(row("perplexity", "Perplexity", result.quantized.perplexity))
    rows.append(row("perplexity", "Perplexity of the original", result.original.perplexity))
    return [result for result in rows if math.isfinite(result.metric_value)]
