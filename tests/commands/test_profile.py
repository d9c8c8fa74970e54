import json

import pytest
import torch
from typer.testing import CliRunner

import laaciq
from laaciq.cli import app
from laaciq.corpus import read_split
from laaciq.errors import BadOption, OutputConflict
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.quantization import apply_checkpoint
from laaciq.quantization.dequantized import load_dequantized
from laaciq.studies.rescaling import plant_outliers
from tests.tiny import ARCHITECTURES, save_tiny

FEW = {"languages": ["eng", "swa"]}


def planted(architecture, folder, blocks):
    """A checkpoint with outlier columns in these blocks, the same function as before."""
    model = load(find_model(save_tiny(architecture, folder / "plain")))
    plant_outliers(model, blocks, kurtosis=100.0)
    model.module.save_pretrained(folder / "planted")
    model.tokenizer.save_pretrained(folder / "planted")
    return folder / "plain", folder / "planted"


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "bloom"])
def test_screening_names_exactly_the_planted_blocks(architecture, tmp_path):
    plain, planted_model = planted(architecture, tmp_path, [1])
    before, after = laaciq.screen(plain, **FEW), laaciq.screen(planted_model, **FEW)
    assert before.outlier_blocks == [] and after.outlier_blocks == [1]
    assert before.conditions[0].answer is False and after.conditions[0].answer is True
    assert before.risk == "LOW"


def test_planting_leaves_the_function_as_it_is(tmp_path):
    plain, planted_model = planted("llama", tmp_path, [0])
    evaluation = laaciq.evaluate(planted_model, against=plain, texts="builtin", served_bound=100.0, **FEW)
    assert all(abs(result.loss.value) < 1e-4 for result in evaluation.languages)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_has_a_profile(architecture, tmp_path):
    model = save_tiny(architecture, tmp_path / "model")
    profiled = laaciq.profile(model, out=tmp_path / "out", **FEW)
    assert Profile.read(tmp_path / "out/profile.json") == profiled
    assert [result.language for result in profiled.languages] == ["eng", "swa"]
    for result in profiled.languages:
        assert sum(result.fractions) == pytest.approx(1)
        assert result.effective_kurtosis == pytest.approx(
            sum(f * b.kurtosis for f, b in zip(result.fractions, profiled.blocks, strict=True))
        )
    assert {c.component for c in profiled.components} >= {"attention", "feed-forward", "embeddings"}
    assert profiled.alignment and profiled.tokenization
    assert (tmp_path / "out/report.html").exists()
    assert {p.suffix for p in (tmp_path / "out/plots").iterdir()} == {".png", ".svg"}


def test_one_passage_a_language_makes_a_profile_without_alignment(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path)))
    texts = read_split("builtin").calibration.select(["eng", "swa"])
    made = [profile_model(model, texts.spread(n), MeasureOptions(), outlier_kurtosis=50) for n in (1, 2)]
    assert [len(result.alignment) for result in made] == [0, 2]
    assert [result.languages[1].passages for result in made] == [1, 2]


def test_predictive_redundancy_and_exposure_where_asked_for(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    profiled = laaciq.profile(model, predictive=True, exposure={"English": 100, "swa": 7}, **FEW)
    assert profiled.predictive_blocks == [0, 1]
    # A random model predicts no better than unigrams: there is no information to share out.
    assert all(result.predictive_redundancy is None for result in profiled.languages)
    assert [result.exposure_tokens for result in profiled.languages] == [100, 7]
    with pytest.raises(BadOption, match="number of tokens"):
        laaciq.profile(model, exposure={"eng": "many"}, **FEW)


def test_survey_sets_models_side_by_side(tmp_path):
    plain, planted_model = planted("llama", tmp_path, [0, 1])
    other = save_tiny("bert", tmp_path / "bert")
    rows = laaciq.survey([plain, planted_model, other], **FEW)
    assert rows[0].risk == "LOW"
    assert rows[1].max_kurtosis > 50 > rows[0].max_kurtosis
    words = ["survey", str(plain), str(planted_model), str(other), "--languages", "eng,swa"]
    shown = CliRunner().invoke(app, words).stdout
    assert "positions" in shown and "rotary" in shown and "learned" in shown


def test_checkpoints_of_ours_are_surveyed_by_the_weights_that_they_mean(tmp_path):
    kinds = {
        "llama": {"method": "adaptive", "table_overhead": 2.0, "keep": 1.0, "served_bound": 100.0, **FEW},
        "gpt2": {"method": "rtn", "embedding_bits": 8, "rank": 2},
    }
    for architecture, options in kinds.items():
        model, out = save_tiny(architecture, tmp_path / architecture), tmp_path / f"{architecture}-q"
        laaciq.quantize(model, out=out, bits=4, group_size=16, **options)
        plain, quantized = load(find_model(model)), load_dequantized(find_model(out))
        apply_checkpoint(plain, out)
        for (name, expected), (same, weights) in zip(
            plain.module.named_parameters(), quantized.module.named_parameters(), strict=True
        ):
            assert name == same
            assert torch.equal(weights, expected)
        rows = laaciq.survey([model, out], **FEW)
        assert rows[0].architecture == rows[1].architecture
        assert rows[0].max_kurtosis != rows[1].max_kurtosis


def test_screen_takes_a_profile_made_before(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    words = ["profile", str(model), "--languages", "eng,swa", "--out", str(tmp_path / "p")]
    assert CliRunner().invoke(app, words).exit_code == 0
    for place in (tmp_path / "p", tmp_path / "p/profile.json"):
        shown = CliRunner().invoke(app, ["screen", str(place), "--json"])
        assert json.loads(shown.stdout)["risk"] == "LOW"
        with pytest.raises(BadOption, match="--languages has no effect on a finished profile"):
            laaciq.screen(place, languages=["eng"])
    (tmp_path / "p/profile.json").write_text("{}")
    with pytest.raises(BadOption, match=r"profile\.json is not valid: model is missing"):
        laaciq.screen(tmp_path / "p/profile.json")


def test_a_finished_profile_is_repeated_or_overwritten_on_request(tmp_path):
    model, out = save_tiny("llama", tmp_path / "model"), tmp_path / "p"
    first = laaciq.profile(model, out=out, **FEW)
    before = (out / "profile.json").stat().st_mtime_ns
    assert laaciq.profile(model, out=out, **FEW) == first
    assert (out / "profile.json").stat().st_mtime_ns == before
    tokens = {"exposure": {"eng": 100, "swa": 7}}
    with pytest.raises(OutputConflict, match=r"finished 'laaciq profile .*', and this is .* with .*\"swa\": 7"):
        laaciq.profile(model, out=out, **tokens, **FEW)
    profiled = laaciq.profile(model, out=out, overwrite=True, **tokens, **FEW)
    assert [result.exposure_tokens for result in profiled.languages] == [100, 7]
