import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from typer.testing import CliRunner

import laaciq
from laaciq.cli import app
from laaciq.engine.run_folder import RunFolder
from laaciq.errors import BadOption, LaaciqError, OutputConflict
from laaciq.evaluation import Evaluation
from laaciq.evaluation.verdict import percent, percent_estimate
from tests.tiny import save_tiny

FEW = ["eng", "swa", "hin"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, texts and a run of it."""
    folder = tmp_path_factory.mktemp("published")
    whole = laaciq.read_texts()
    (folder / "texts").mkdir()
    for code in FEW:
        (folder / f"texts/{code}.txt").write_text("\n".join(text[:40] for text in whole[code].texts[:20]))
    save_tiny("llama", folder / "model")
    (folder / "model/README.md").write_text("---\nlicense: mit\n---\n# The original\n")
    laaciq.run(folder / "model", out=folder / "run", **options(folder))
    return folder


def options(folder):
    return {"texts": str(folder / "texts"), "method": "gptq", "bits": 3, "group_size": 16, "served_bound": 100.0}


@pytest.fixture
def run(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    return tmp_path / "run"


def test_the_card_lies_in_the_checkpoint_and_the_hub_reads_it(run):
    written = laaciq.card(run, base_model="org/large", name="me/small", license="apache-2.0")
    card = ModelCard.load(run / "checkpoint/README.md")
    assert written.text == (run / "checkpoint/README.md").read_text()
    assert written.lacking == []
    data = card.data.to_dict()
    assert (data["base_model"], data["base_model_relation"]) == ("org/large", "quantized")
    assert (data["license"], data["library_name"]) == ("apache-2.0", "transformers")
    assert data["language"] == ["en", "hi", "sw"]
    evaluation = Evaluation.model_validate_json((run / "evaluation.json").read_text())
    rows = {row.dataset_config: row for row in card.data.eval_results if row.metric_type == "degradation"}
    assert {code: row.metric_value for code, row in rows.items()} == {
        r.language: r.degradation.value for r in evaluation.languages
    }


def test_the_body_says_what_the_theory_asks_for(run):
    laaciq.card(run, base_model="org/large")
    body = ModelCard.load(run / "checkpoint/README.md").content
    evaluation = Evaluation.model_validate_json((run / "evaluation.json").read_text())
    for result in evaluation.languages:
        assert f"| {result.name} ({result.language}) |" in body
        assert percent_estimate(result.degradation) in body
    disparity = evaluation.disparity
    for value in (disparity.plug_in.value, disparity.noise_floor, disparity.cross_fitted):
        assert percent(value) in body
    assert f"The worst-off language is {evaluation.judged[0].name}" in body
    assert "None of the 2 blocks has weights with an excess kurtosis" in body
    assert "3 bits, group 16, symmetric" in body
    assert "the calibration part of `texts`, in 3 languages: eng, hin, swa, weighted equally" in body
    assert "the test part of `texts`, 12 passages per language, 3 languages" in body
    assert 'from_pretrained("large-laaciq-4bit")' in body


def test_no_folder_of_this_machine_is_published(run, folder):
    for known in ({}, {"base_model": "org/large"}):
        text = laaciq.card(run, overwrite=True, **known).text
        assert str(folder) not in text
        assert str(run) not in text
    assert "laaciq run org/large --texts texts" in text


def test_what_is_not_known_is_said_and_left_out(run):
    written = laaciq.card(run)
    assert len(written.lacking) == 1
    assert "--base-model" in written.lacking[0]
    data = ModelCard.load(run / "checkpoint/README.md").data.to_dict()
    assert "base_model" not in data
    # The original's own card lies in its folder.
    assert data["license"] == "mit"


def test_a_card_does_not_make_a_run_stale(run, folder):
    """Nor does a run that is up to date take the card away; one that quantizes otherwise does."""
    laaciq.card(run)
    before = (run / "checkpoint/model.safetensors").stat().st_mtime_ns
    laaciq.run(folder / "model", out=run, **options(folder))
    assert (run / "checkpoint/model.safetensors").stat().st_mtime_ns == before
    assert (run / "checkpoint/README.md").exists()
    card = (run / "checkpoint/README.md").read_text()
    (run / "checkpoint/README.md").write_text(f"{card}\nedited by hand")
    with pytest.raises(OutputConflict, match=r"did not write \(checkpoint/README\.md\)"):
        laaciq.run(folder / "model", out=run, overwrite=True, **options(folder) | {"bits": 4})
    (run / "checkpoint/README.md").write_text(card)
    laaciq.run(folder / "model", out=run, overwrite=True, **options(folder) | {"bits": 4})
    assert not (run / "checkpoint/README.md").exists()


@pytest.mark.parametrize("lacking", ["evaluation.json", "plans.json", "profile.json", "checkpoint/plan.json"])
def test_half_a_run_gets_no_card(run, lacking):
    (run / lacking).unlink()
    with pytest.raises(BadOption, match=r"not finished.*laaciq run .* --out"):
        laaciq.card(run)
    assert not (run / "checkpoint/README.md").exists()


def test_an_unfinished_run_gets_no_card(run):
    RunFolder(run, description={"command": "laaciq run --passages 3"}, overwrite=True)
    with pytest.raises(BadOption, match=r"not finished. To finish it, run: laaciq run --passages 3 --out .*"):
        laaciq.card(run)


def test_a_checkpoint_of_another_plan_gets_no_card(run, folder):
    laaciq.quantize(folder / "model", out=run / "checkpoint", overwrite=True, method="rtn", bits=4, group_size=16)
    with pytest.raises(BadOption, match="not the one that was measured"):
        laaciq.card(run)


@pytest.mark.parametrize("wrong", [{"base_model": "no such name"}, {"name": "a/b/c"}, {"name": 'x")\nimport os'}])
def test_names_that_the_hub_would_refuse(run, wrong):
    with pytest.raises(BadOption):
        laaciq.card(run, **wrong)


def test_an_edited_card_is_replaced_only_on_request(run, tmp_path):
    laaciq.card(run)
    laaciq.card(run)  # the same text again
    path = run / "checkpoint/README.md"
    edited = f"{path.read_text()}\nedited by hand"
    path.write_text(edited)
    with pytest.raises(OutputConflict, match=r"README\.md exists.*--overwrite"):
        laaciq.card(run)
    assert path.read_text() == edited
    assert laaciq.card(run, overwrite=True).text == path.read_text()
    path.write_text("years of work")
    with pytest.raises(OutputConflict, match="was not written by this command"):
        laaciq.card(run, overwrite=True)
    assert path.read_text() == "years of work"
    with pytest.raises(OutputConflict, match="is a folder"):
        laaciq.card(run, out=tmp_path)


def test_no_run(tmp_path):
    with pytest.raises(BadOption, match="is not a run"):
        laaciq.card(tmp_path / "nowhere")


def test_a_checkpoint_for_every_language_has_one_card(folder, tmp_path):
    wanted = options(folder) | {"method": "effective"}
    laaciq.run(folder / "model", out=tmp_path / "run", separate=True, **wanted)
    text = laaciq.card(tmp_path / "run").text
    assert 'subfolder="' in text
    assert all(code in text.partition("in a folder of that name:")[2].partition("\n")[0] for code in FEW)


def test_a_run_in_one_language_has_a_card(folder, tmp_path):
    laaciq.run(folder / "model", out=tmp_path / "run", languages=["swa"], **options(folder))
    text = laaciq.card(tmp_path / "run").text
    assert "| Swahili (swa) |" in text
    limits = {"max_degradation": 100.0, "max_disparity": 100.0}
    assert [limit.verdict for limit in laaciq.check(tmp_path / "run", **limits).limits] == ["PASS", "FAIL"]


@pytest.mark.parametrize("name", ["evaluation.json", "plans.json", "profile.json", "run.json", "checkpoint/plan.json"])
@pytest.mark.parametrize("content", [b"null", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_a_run_from_a_stranger(run, name, content):
    (run / name).write_bytes(content)
    with pytest.raises(LaaciqError, match=Path(name).name):
        laaciq.card(run)


@pytest.mark.parametrize("head", ["license: &a [*a]", "license: " + "[" * 5000, "- mit", "license: [mit]"])
def test_a_card_of_the_original_that_cannot_be_parsed_names_no_license(folder, run, tmp_path, head):
    shutil.copytree(folder / "model", tmp_path / "model")
    (tmp_path / "model/README.md").write_text(f"---\n{head}\n---\n")
    evaluation = json.loads((run / "evaluation.json").read_text())
    (run / "evaluation.json").write_text(json.dumps(evaluation | {"original": str(tmp_path / "model")}))
    assert any("license" in lacking for lacking in laaciq.card(run, out=tmp_path / "CARD.md").lacking)


def test_a_masked_model_that_no_text_was_used_for(folder, tmp_path):
    save_tiny("bert", tmp_path / "model")
    wanted = options(folder) | {"method": "rtn", "languages": ["eng", "swa"]}
    laaciq.run(tmp_path / "model", out=tmp_path / "run", **wanted)
    text = laaciq.card(tmp_path / "run").text
    assert "AutoModelForMaskedLM.from_pretrained" in text
    assert "Calibration text**: none was read" in text


def test_command_line(run, tmp_path):
    words = ["card", str(run), "--base-model", "org/large", "--license", "mit", "--out", str(tmp_path / "CARD.md")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert result.stdout == f"Card: {tmp_path / 'CARD.md'}\n"
    assert ModelCard.load(tmp_path / "CARD.md").data.base_model == "org/large"


def test_a_language_that_is_no_code_is_refused(run):
    evaluation = json.loads((run / "evaluation.json").read_text())
    evaluation["languages"][0]["language"] = "\u202eabc"
    (run / "evaluation.json").write_text(json.dumps(evaluation))
    with pytest.raises(LaaciqError, match=r"languages\.0\.language"):
        laaciq.card(run)
