import json

import pytest
from typer.testing import CliRunner

import laaciq
from laaciq.cli import app
from laaciq.errors import BadOption, OutputConflict
from laaciq.options.methods import METHODS
from tests.tiny import save_tiny

COMMON = ["--group-size", "16", "--served-bound", "100", "--languages", "eng,swa"]


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_quantize_writes_a_checkpoint_and_names_the_next_command(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    result = invoke("quantize", model, "--out", tmp_path / "q", "--method", "minimax", "--bits", 3, *COMMON)
    assert result.exit_code == 0, result.output
    # On the same text, read in the same way: the built-in text would not be what it was quantized for.
    assert (
        f"Next: laaciq evaluate {tmp_path / 'q'} --languages eng,swa --served-bound 100.0 --against {model}\n"
        in result.stdout
    )
    assert {"config.json", "model.safetensors", "plan.json", "tokenizer.json"} <= {
        p.name for p in (tmp_path / "q").iterdir()
    }
    written = json.loads((tmp_path / "q/plan.json").read_text())
    assert (written["method"], list(written["weights"]), written["tensors"][0]["clip"]) == (
        "minimax",
        ["eng", "swa"],
        "minimax",
    )


def test_strategies_combine_and_say_what_they_weigh(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    words = [
        "--method",
        "rtn",
        "--keep",
        "2",
        "--protect",
        "0",
        "--protect",
        "swa=1",
        "--protect-bits",
        "8",
        "--separate",
        *COMMON,
    ]
    result = invoke("quantize", model, "--out", tmp_path / "q", *words, "--json")
    written = json.loads(result.stdout)
    assert set(written["folders"]) == {"swa", "others"}
    for folder in written["folders"].values():
        assert laaciq.evaluate(folder, against=model, languages=["swa"], served_bound=100).languages[0].tokens > 0


def test_the_same_from_python(tmp_path):
    model = save_tiny("gpt2", tmp_path / "model")
    result = laaciq.quantize(model, out=tmp_path / "q", method="rtn", bits=4, group_size=16, keep=1.0)
    assert result.plans.first.tensors[0].keep == 1.0
    assert result.total_bytes == result.plans.first.size.model_bytes


def test_what_is_there_is_left_alone(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    (tmp_path / "q").mkdir()
    (tmp_path / "q/thesis.txt").write_text("years of work")
    with pytest.raises(OutputConflict):
        laaciq.quantize(model, out=tmp_path / "q")
    assert [path.name for path in (tmp_path / "q").iterdir()] == ["thesis.txt"]
    with pytest.raises(BadOption, match="11 % of the weights cannot stay in 16 bits"):
        laaciq.quantize(model, out=tmp_path / "r", keep=11.0)
    assert not (tmp_path / "r").exists()


def test_a_finished_checkpoint_is_replaced_whole_and_only_on_request(tmp_path):
    model, out = save_tiny("llama", tmp_path / "model"), tmp_path / "q"
    plain = {"out": out, "method": "rtn", "group_size": 16}
    separate = {**plain, "separate": True, "languages": ["eng", "swa"], "served_bound": 100.0}
    laaciq.quantize(model, **plain)
    before = (out / "config.json").read_text()
    with pytest.raises(OutputConflict, match=r"finished result.*--overwrite"):
        laaciq.quantize(model, **separate)
    assert (out / "config.json").read_text() == before
    # One for each language leaves nothing of the one for all.
    laaciq.quantize(model, overwrite=True, **separate)
    assert {path.name for path in out.iterdir()} == {"eng", "swa", ".laaciq-files", ".laaciq-result"}
    laaciq.quantize(model, overwrite=True, **plain)
    assert (out / "config.json").read_text() == before
    assert not (out / "eng").exists()


def test_methods_are_listed():
    shown = invoke("methods").stdout
    assert all(name in shown for name in METHODS)
    assert set(json.loads(invoke("methods", "--json").stdout)) == set(METHODS)
