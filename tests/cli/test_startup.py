"""Commands that need no model start at once: nothing heavy is imported, and neither is it for help and for TAB."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.results import evaluation

HEAVY = ["torch", "transformers", "scipy", "pandas", "matplotlib", "plotly", "numba"]
# Runs the program as its user would, and prints on standard error what it imported.
PROGRAM = f"""
import atexit, sys
from laaciq.cli import main
atexit.register(lambda: print("IMPORTED", *(m for m in {HEAVY} if m in sys.modules), file=sys.stderr))
main()
"""


def start(*words, **environment):
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["run", "--help"], ["methods"], ["texts"], ["run", "--bits", "5"]],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(words):
    result = start(*words)
    assert result.returncode == (2 if "5" in words else 0), result.stderr
    assert result.stderr.splitlines()[-1].split() == ["IMPORTED"]


def test_a_check_imports_nothing_heavy(tmp_path):
    (tmp_path / "evaluation.json").write_text(evaluation({"eng": 0.01, "swa": 0.2}).model_dump_json())
    result = start("check", tmp_path, "--max-D", "0.1")
    assert result.returncode == 1, result.stderr
    assert result.stderr.splitlines()[-1].split() == ["IMPORTED"]


def complete(*words, incomplete=""):
    """What bash offers after these words."""
    typed = " ".join(["laaciq", *words, incomplete])
    result = start(_LAACIQ_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(words) + 1))
    assert result.stderr.split() == ["IMPORTED"]
    return result.stdout.split()


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        (["run", "--effort"], "", ["fast", "full"]),
        (["run", "--method"], "mi", ["minimax"]),
        (["run", "--languages"], "eng,sw", ["eng,swa"]),
        (["compare", "--methods"], "gptq,nf", ["gptq,nf4"]),
        (["evaluate", "--device"], "c", ["cpu", "cuda"]),
        (["export", "--format"], "g", ["gptq", "gguf"]),
        ([], "sw", ["sweep"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_choices_complete_on_tab(words, incomplete, offered):
    assert complete(*words, incomplete=incomplete) == offered


def test_languages_of_a_folder_complete_on_tab(tmp_path):
    for code in ("sme", "smn"):
        (tmp_path / f"{code}.txt").write_text("Bures.\n")
    assert complete("run", "--texts", str(tmp_path), "--languages", incomplete="s") == ["sme", "smn"]


def test_json_of_methods_is_json():
    assert json.loads(start("methods", "--json").stdout)
