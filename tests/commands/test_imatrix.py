import json

import gguf
import numpy as np
import pytest
from typer.testing import CliRunner

import laaciq
from laaciq.cli import app
from laaciq.errors import OutputConflict
from laaciq.models import find_model, load
from laaciq.options import WeightOptions
from laaciq.planning.rules import make_plans
from tests.tiny import save_tiny

SHORT = {"languages": ["eng", "swa"], "served_bound": 100.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("model"))


def sums(path, name):
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}[f"{name}.in_sum2"]


def test_languages_count_alike_or_by_the_plan(model, tmp_path):
    plan = make_plans(load(find_model(model)).anatomy, WeightOptions(bits=3)).first
    plan = plan.model_copy(update={"weights": {"eng": 1.0, "swa": 0.0}})
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    alike = laaciq.imatrix(model, out=tmp_path / "alike", **SHORT)
    assert alike.weights == {"eng": 0.5, "swa": 0.5}
    assert alike.files == ["imatrix.gguf"]
    planned = laaciq.imatrix(model, out=tmp_path / "planned", plan=tmp_path / "plan.json", **SHORT)
    assert planned.files == ["imatrix.gguf", "types.txt"]
    types = (tmp_path / "planned/types.txt").read_text().splitlines()
    assert sum(line.endswith("=q3_K") for line in types) == len(plan.tensors)
    name = "blk.0.attn_q.weight"
    assert not np.allclose(sums(tmp_path / "alike/imatrix.gguf", name), sums(tmp_path / "planned/imatrix.gguf", name))


def test_the_command_line(model, tmp_path):
    words = ["imatrix", model, "--out", tmp_path / "out", "--languages", "eng,swa", "--served-bound", 100]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    assert "2 languages count alike." in result.stdout
    assert "llama-quantize --imatrix" in result.stdout
    outcome = json.loads(CliRunner().invoke(app, [*map(str, words), "--overwrite", "--json"]).stdout)
    assert outcome["files"] == ["imatrix.gguf"]


def test_what_was_there_stays(model, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(OutputConflict):
        laaciq.imatrix(model, out=tmp_path, overwrite=True, **SHORT)
    assert (tmp_path / "mine").read_text() == "mine"
