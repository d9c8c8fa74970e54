"""The head of a card is what the hub reads: it must come back as it went in, with the figures of the evaluation."""

from __future__ import annotations

import pytest
from huggingface_hub import ModelCard

from laaciq.evaluation import Evaluation
from laaciq.report.card_head import card_head, dataset_name, hub_language
from tests.report.test_report import CASES, evaluation


def read_back(result: Evaluation, **known: object) -> ModelCard:
    options = {"kind": "causal", "name": "org/small", "base_model": "org/large", "license": {}} | known
    return ModelCard(f"---\n{card_head(result, **options).to_yaml()}\n---\n# title\n")


@pytest.mark.parametrize("case", CASES)
def test_every_language_has_its_figures(case: str) -> None:
    evaluated = evaluation(case)
    rows = read_back(evaluated).data.eval_results
    assert rows is not None
    for result in evaluated.languages:
        metrics = {row.metric_name.partition(":")[0]: row for row in rows if row.dataset_config == result.language}
        assert metrics["Perplexity"].metric_value == result.quantized.perplexity
        assert metrics["Perplexity of the original"].metric_value == result.original.perplexity
        assert metrics["ΔNLL, nats per token"].metric_value == result.loss.value
        degradation = [row for name, row in metrics.items() if row.metric_type == "degradation"]
        assert len(degradation) == (0 if result.collapsed else 1)
        for row in degradation:
            assert row.metric_value == result.degradation.value
            expected = {"low": result.degradation.low, "high": result.degradation.high, "confidence": 0.95}
            assert row.metric_args == (expected if result.documents > 1 else None)


@pytest.mark.parametrize("case", CASES)
def test_one_result_a_language(case: str) -> None:
    result = evaluation(case)
    (index,) = read_back(result).data.to_dict()["model-index"]
    assert index["name"] == "org/small"
    assert [r["dataset"]["config"] for r in index["results"]] == [r.language for r in result.languages]


def test_only_languages_that_work_are_the_models() -> None:
    assert read_back(evaluation("one not served")).data.language == ["en", "fr", "hi", "ka", "ru", "sw", "ta", "yo"]
    assert "my" not in read_back(evaluation("one collapsed")).data.language
    assert read_back(evaluation("all collapsed")).data.language is None


def test_what_is_not_known_is_left_out() -> None:
    result = evaluation("none")
    known = read_back(result, license={"license": "other", "license_name": "rail"}).data.to_dict()
    assert (known["base_model"], known["base_model_relation"]) == ("org/large", "quantized")
    assert (known["license"], known["license_name"]) == ("other", "rail")
    assert not {"base_model", "base_model_relation", "license"} & set(read_back(result, base_model=None).data.to_dict())


def test_masked_models_fill_masks() -> None:
    assert read_back(evaluation("none"), kind="masked").data.pipeline_tag == "fill-mask"


@pytest.mark.parametrize(
    ("code", "known"), [("swa", "sw"), ("zho", "zh"), ("ceb", "ceb"), ("nor", "no"), ("yue", "yue")]
)
def test_languages_by_the_shorter_code_where_there_is_one(code: str, known: str) -> None:
    assert hub_language(code) == known


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        ("builtin", "laaciq-builtin"),
        ("/home/me/news.jsonl", "news"),
        ("datasets:org/flores:devtest:eng", "org/flores"),
        ("udhr:/home/me/udhr", "cis-lmu/udhr-lid"),
    ],
)
def test_test_text_by_a_name_that_others_know(texts: str, name: str) -> None:
    assert dataset_name(texts) == name
