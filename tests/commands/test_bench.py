import json
import signal
import subprocess
import sys
from typing import ClassVar

import pytest

from laaciq.commands.bench import bench, recorded_original
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption, LaaciqError, TooLittleMemory


@pytest.mark.parametrize(
    ("command", "original"), [("laaciq run my/model --bits 3", "my/model"), ("laaciq run --bits 3", "reference")]
)
@pytest.mark.parametrize("place", ["run/checkpoint", "run/checkpoint/swa"])
def test_a_run_records_the_original(tmp_path, command, original, place):
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / "run/run.json").write_text(json.dumps({"laaciq": "0", "finished": True, "command": command}))
    assert recorded_original(tmp_path / place) == original


def test_the_original_that_a_run_records_is_named_before_it_is_loaded(tmp_path):
    """The run may be a stranger's."""

    class Said(Progress):
        sentences: ClassVar[list[str]] = []

        def say(self, text):
            self.sentences.append(text)

    (tmp_path / "run/checkpoint").mkdir(parents=True)
    marker = {"laaciq": "0", "finished": True, "command": "laaciq run ./nowhere --bits 3"}
    (tmp_path / "run/run.json").write_text(json.dumps(marker))
    with pytest.raises(LaaciqError, match="nowhere"):
        bench(tmp_path / "run/checkpoint", progress=Said())
    assert Said.sentences == ["The original is ./nowhere, by run.json; give another with --against."]


def test_nothing_recorded(tmp_path):
    with pytest.raises(BadOption, match="give the original with --against"):
        bench(tmp_path)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"dtype": "int3"}, "--dtype"),
        ({"new_tokens": 1}, "--new-tokens"),
        ({"batch": 0}, "--batch"),
        ({"prompt_tokens": 0}, "--prompt-tokens"),
        ({"bach": 1}, "option 'bach'"),
    ],
)
def test_options_out_of_range(options, named):
    with pytest.raises(BadOption, match=named):
        bench("checkpoint", against="model", **options)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (-signal.SIGILL, BadOption, "lacks an instruction that bfloat16 needs: give --dtype float32"),
        (-signal.SIGKILL, TooLittleMemory, "lack of memory"),
        (-signal.SIGSEGV, LaaciqError, "died of SIGSEGV"),
        (1, LaaciqError, "failed .KeyError: 'x'."),
    ],
)
def test_a_child_that_dies_is_one_sentence(monkeypatch, status, kind, words):
    """A program that takes a step and dies the same way stands in for the child."""
    dying = f"import os; print(flush=True); os.kill(os.getpid(), {-status})" if status < 0 else "{}['x']"
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: real([sys.executable, "-c", dying], **options))
    with pytest.raises(kind, match=words):
        bench("checkpoint", against="model", dtype="bfloat16")


def test_the_parent_imports_no_torch():
    """It would take seconds, and memory that is measured."""
    words = "import sys, laaciq; laaciq.bench; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0
