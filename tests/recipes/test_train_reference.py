import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).parents[2]
RECIPE = """
[texts]
eng = 0
swa = 2000
[model]
vocabulary = 300
width = 32
blocks = 2
heads = 2
key_value_heads = 1
feed_forward = 64
attention = "softmax"
[training]
passes = 2.0
mix_exponent = 1.0
row_tokens = 64
rows_per_step = 8
learning_rate = 4e-3
weight_decay = 0.1
balance_penalty = 0.1
seed = 0
"""


@pytest.fixture
def folder(tmp_path):
    for code in ("eng", "swa"):
        lines = (ROOT / "laaciq/reference/texts/test" / f"{code}.txt").read_text().splitlines()
        (tmp_path / f"{code}.txt").write_text("\n".join(lines))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def train(folder, *options):
    command = [sys.executable, str(ROOT / "recipes/train_reference.py"), "--texts", str(folder)]
    command += ["--recipe", str(folder / "recipe.toml"), "--out", str(folder / "out"), "--device", "cpu", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_tiny_languages_end_to_end(folder):
    result = train(folder)
    assert result.returncode == 0, result.stderr
    model = AutoModelForCausalLM.from_pretrained(folder / "out")
    tokenizer = AutoTokenizer.from_pretrained(folder / "out")
    ids = tokenizer("Habari ya asubuhi", return_tensors="pt")["input_ids"]
    assert ids[0, 0] == tokenizer.bos_token_id
    assert model(ids).logits.shape[-1] == 300
    table = {row["language"]: row for row in json.loads((folder / "out/languages.json").read_text())}
    assert table["swa"]["training_bytes"] <= 2000 < table["eng"]["training_bytes"]
    assert all(0 < row["passes"] <= 10 for row in table.values())
    log = json.loads((folder / "out/training.json").read_text())["log"]
    assert log[-1]["loss"] < log[0]["loss"]


@pytest.mark.parametrize(
    ("option", "message"), [("training.passes=12", "more than 10"), ("training.nonsense=1", "unknown key")]
)
def test_what_the_recipe_refuses(folder, option, message):
    result = train(folder, "--set", option)
    assert result.returncode != 0
    assert message in result.stderr
