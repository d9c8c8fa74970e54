import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import laaciq
from laaciq.commands.opening import open_session
from laaciq.commands.settings import Settings
from laaciq.errors import BadOption, OutputConflict
from laaciq.options import PlanOptions
from laaciq.planning.budget import user_weights
from laaciq.planning.decision import calibrate, decide
from laaciq.planning.minimax import IMPROVEMENT
from laaciq.quantization.model import quantize_layers
from laaciq.report.wording import planning_sentences
from tests.short_texts import write_short_texts
from tests.tiny import save_tiny

FEW = ["eng", "swa", "hin"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_short_texts(tmp_path_factory.mktemp("texts"), FEW, letters=60)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("model") / "model")


def planned(model, texts, **options):
    return laaciq.plan(model, texts=str(texts), served_bound=100, **options)


@pytest.mark.parametrize(
    ("objective", "budget"), [("worst", 3.5), ("worst-quarter", 5.0), ("worst-and-spread", 3.5), ("mean", 5.0)]
)
def test_the_budget_holds_and_the_best_measured_plan_is_taken(model, texts, objective, budget):
    result = planned(model, texts, budget=budget, objective=objective)
    assert result.plan.size.block_bits_per_weight <= budget
    # Of plans that are as good the earlier one.
    assert result.rounds[result.chosen].value <= min(entry.value for entry in result.rounds) / (1 - IMPROVEMENT)
    assert sum(result.plan.weights.values()) == pytest.approx(1)
    assert set(result.plan.predicted) == set(FEW)


def test_a_budget_for_the_whole_model_counts_embeddings(model, texts):
    result = planned(model, texts, budget=7.0, budget_for="model")
    assert result.plan.size.model_bits_per_weight <= 7.0
    assert result.plan.token_matrices


def test_predictions_for_one_language_and_one_plan_have_no_correlation(model, texts, tmp_path):
    result = planned(model, texts, calibration_languages=["swa"], out=tmp_path / "plan.json")
    assert (len(result.probes), result.agreement.r) == (1, None)
    assert " losses have a median error of " in planning_sentences(result)[0]
    # What is written is read back.
    assert planned(model, texts, calibration_languages=["swa"], out=tmp_path / "plan.json") == result


def test_without_a_budget_it_is_as_large_as_the_plain_grid(model, texts):
    result = planned(model, texts, bits=4, group_size=32)
    assert result.plan.size.block_bits_per_weight <= 4 + 16 / 32


def test_held_out_languages_decide_nothing(model, texts, tmp_path):
    outcome = planned(model, texts, hold_out=("swa",))
    assert (outcome.languages, outcome.held_out) == (["eng", "hin"], ["swa"])
    assert set(outcome.plan.weights) == {"eng", "hin"}
    result = laaciq.run(model, texts=str(texts), served_bound=100, hold_out=("swa",), out=tmp_path / "run")
    assert result.planning == outcome
    assert {r.language for r in result.evaluation.languages} == set(FEW)


def test_a_plan_is_edited_by_hand_and_quantized(model, texts, tmp_path):
    file = tmp_path / "plan.json"
    planned(model, texts, out=file, budget=4.0)
    content = json.loads(file.read_text())
    content["tensors"][0]["bits"] = 8
    file.write_text(json.dumps(content))
    outcome = laaciq.quantize(model, out=tmp_path / "q", plan=str(file), texts=str(texts))
    assert outcome.plans.first.tensors[0].bits == 8
    on_disk = sum(path.stat().st_size for path in (tmp_path / "q").glob("*.safetensors"))
    # Of a model this small the header is a good part.
    assert on_disk == pytest.approx(outcome.total_bytes, rel=0.3)
    result = laaciq.run(model, plan=str(file), texts=str(texts), served_bound=100, out=tmp_path / "run")
    assert result.plan == outcome.plans.first


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "not valid"), ('{"method": "planned"}', "not valid: tensors is missing"), (None, "is missing")],
)
def test_a_broken_plan_is_an_error(model, texts, tmp_path, content, says):
    file = tmp_path / "plan.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadOption, match=says):
        laaciq.quantize(model, out=tmp_path / "q", plan=str(file), texts=str(texts))
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"budget": 1.0}, "smallest plan takes"),
        ({"hold_out": tuple(FEW)}, "leaves no language"),
        ({"keep": 1.0}, "unknown option 'keep'"),
        ({"language_weight": ("swa",), "objective": "mean"}, "is not a weight"),
        ({"language_weight": ("deu=2",), "objective": "mean"}, "not a language of this plan"),
    ],
)
def test_what_cannot_be_planned_is_an_error(model, texts, options, says):
    with pytest.raises(BadOption, match=says):
        planned(model, texts, **options)


def test_what_was_computed_is_not_computed_again(model, texts, tmp_path):
    file = tmp_path / "plan.json"
    first = planned(model, texts, out=file)
    parts = {path: path.stat().st_mtime_ns for path in (tmp_path / "plan.json.parts/trials").rglob("*.json")}
    assert parts
    text = file.read_text()
    assert planned(model, texts, out=file) == first
    file.write_text(text + "\n")
    with pytest.raises(OutputConflict, match="exists"):
        planned(model, texts, out=file)
    assert planned(model, texts, out=file, overwrite=True) == first
    assert file.read_text() == text
    assert {path: path.stat().st_mtime_ns for path in parts} == parts
    file.write_text("years of work")
    with pytest.raises(OutputConflict, match="was not written by this command"):
        planned(model, texts, out=file, overwrite=True)
    assert file.read_text() == "years of work"


@pytest.mark.parametrize("objective", ["worst", "mean"])
def test_the_layers_that_planning_keeps_are_those_of_its_plan(model, texts, objective):
    options = PlanOptions.of(model=str(model), texts=str(texts), budget=4.0, objective=objective, served_bound=100)
    session = open_session(options, Settings())
    calibration = calibrate(session, options.quantizing())
    plan = decide(session, options.quantizing(), calibration).plans.first
    blocks = session.rounded_blocks(plan, calibration)
    assert session.store.valid(f"rounded/{blocks.key[:16]}/0", blocks.key)
    layers, _ = session.quantized(plan.model_copy(update={"tuned": 0}), calibration)
    again = list(quantize_layers(session.original, plan, calibration))
    assert [tensor for tensor, _ in layers] == [tensor for tensor, _ in again]
    for (tensor, first), (_, second) in zip(layers, again, strict=True):
        assert torch.equal(first.dequantize(tensor), second.dequantize(tensor))


def test_a_plan_from_the_store_is_rounded_anew_to_the_same_checkpoint(model, texts, tmp_path):
    result = {"texts": str(texts), "served_bound": 100, "out": tmp_path / "run"}
    laaciq.run(model, **result)
    before = load_file(tmp_path / "run" / "checkpoint" / "model.safetensors")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    laaciq.run(model, **result)
    after = load_file(tmp_path / "run" / "checkpoint" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_user_weights():
    assert user_weights((), FEW) is None
    assert np.array_equal(user_weights(("swa=3", "hin=0"), FEW), [1, 3, 0])
