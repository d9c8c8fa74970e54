import json
import shutil
from pathlib import Path

from typer.testing import CliRunner

from laaciq.cli import app
from tests.models.foreign.make_data import SHAPE
from tests.tiny import save_tiny

DATA = Path(__file__).parents[1] / "models/foreign/data"


def test_a_checkpoint_that_another_library_made(tmp_path):
    original = save_tiny("llama", tmp_path / "original", **{**SHAPE, "vocab_size": 400})
    folder = shutil.copytree(DATA / "gptq-v1-affine", tmp_path / "gptq")
    for file in original.glob("tokenizer*"):
        shutil.copy(file, folder)
    words = ["evaluate", str(folder), "--against", str(original), "--languages", "eng,swa", "--served-bound", "100"]
    words += ["--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    languages = json.loads(result.stdout)["languages"]
    assert [entry["language"] for entry in languages] == ["eng", "swa"]
    # 4 bits on random weights: far from nothing, and farther still from another model (whose best guess is the same once in 400).
    assert all(0.5 < entry["top_agreement"] < 1 and 0 < entry["kl_per_token"] < 0.5 for entry in languages)
    assert "Swahili" in CliRunner().invoke(app, words).stdout
