import json

from typer.testing import CliRunner

import laaciq
from laaciq.cli import app
from tests.tiny import save_tiny


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_export_says_what_it_did(tmp_path):
    model = save_tiny("llama", tmp_path / "model", hidden_size=64, intermediate_size=96)
    laaciq.quantize(model, out=tmp_path / "q", method="rtn", group_size=32, embedding_bits=8)
    words = ["export", tmp_path / "q", "--format", "compressed-tensors", "--out", tmp_path / "out"]
    assert "--fold" in str(invoke(*words).exception)
    folding = ["--fold", "--against", model, "--languages", "eng,swa", "--passages", 2, "--served-bound", 100]
    result = invoke(*words, *folding)
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    assert "4 bits, groups of 32: 14 layers" in shown
    assert "Folded: 2 tensors; model.embed_tokens.weight to 16 bits" in shown
    assert "The rules of vLLM on a GPU are met: 4 or 8 bits" in shown
    assert "The rules of vLLM on a CPU are met: 4 bits" in shown
    assert "MB before" in shown
    assert "eng English" in shown
    result = json.loads(invoke(*words, *folding, "--overwrite", "--json").stdout)
    assert {tuple(rule["broken_by"]) for rules in result["runtimes"].values() for rule in rules} == {()}
    assert len(result["after"]["languages"]) == 2
