"""Commands that need no model start at once: nothing heavy is imported, not even to refuse an option or to answer TAB."""

import os
import subprocess
import sys

import pytest

from tests.cli.results import evaluation

HEAVY = ["torch", "transformers", "scipy", "pandas", "matplotlib", "plotly", "numba"]
# Runs the program as a user would, and prints last on standard error what it imported.
PROGRAM = f"""
import atexit, sys
from laaciq.cli import main
atexit.register(lambda: print("imported:", *(m for m in {HEAVY} if m in sys.modules), file=sys.stderr))
main()
"""


def start(*words, **environment):
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.mark.parametrize(
    ("words", "status"),
    [(["--help"], 0), (["run", "--help"], 0), (["methods"], 0), (["texts"], 0), (["run", "--bits", "9"], 2)],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_heavy_is_imported(words, status):
    result = start(*words)
    assert result.returncode == status, result.stderr
    assert result.stderr.splitlines()[-1] == "imported:"


def test_a_check_imports_nothing_heavy(tmp_path):
    (tmp_path / "evaluation.json").write_text(evaluation({"eng": 0.01, "swa": 0.2}).model_dump_json())
    result = start("check", tmp_path, "--max-D", "0.1")
    assert result.returncode == 1, result.stderr
    assert result.stderr.splitlines()[-1] == "imported:"


def test_completion_imports_nothing_heavy():
    typed = {"COMP_WORDS": "laaciq compare --methods gptq,nf", "COMP_CWORD": "3"}
    result = start(_LAACIQ_COMPLETE="complete_bash", **typed)
    assert (result.stdout, result.stderr) == ("gptq,nf4\n", "imported:\n")


@pytest.mark.parametrize(
    ("given", "turns"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")],
    ids=["default", "turns", "policy"],
)
def test_torchs_threads_wait_briefly_for_each_other_unless_the_user_says_otherwise(monkeypatch, given, turns):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    result = start("backends", OMP_DISPLAY_ENV="VERBOSE", **given)
    assert result.returncode == 0, result.stderr
    if sys.platform == "linux":
        assert f"GOMP_SPINCOUNT = '{turns}'" in result.stderr
