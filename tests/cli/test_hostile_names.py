"""Whatever a stranger called a model, a folder or a file, or wrote into a plan, a recipe or a run: the terminal, the shell and readers of our
files act on nothing of it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

import laaciq
from laaciq.cli import main
from laaciq.engine.escaping import printable
from tests.payloads import PAYLOADS, assert_inert
from tests.tiny import save_tiny

# In UTF-8 and without a slash, so that a file may have it.
NAME = "=<b>$(touch x)`touch x`;\x1b[31m\x9b\u202e\n'\"|[bold](y)*_\\ {a: &b !c}@d:smile:"
ANYTHING = " ".join(PAYLOADS.values())
TEXT = " ".join(value for name, value in PAYLOADS.items() if name != "surrogate")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and texts of that name."""
    place = tmp_path_factory.mktemp("hostile")
    save_tiny("llama", place / NAME)
    (place / NAME / "README.md").write_text(f"---\nlicense: {json.dumps(TEXT)}\n---\n")
    texts = laaciq.read_texts()
    (place / f"texts {NAME}").mkdir()
    for code in ("eng", "swa"):
        (place / f"texts {NAME}/{code}.txt").write_text("\n".join(text[:40] for text in texts[code].texts[:20]))
    return place


@pytest.fixture
def command(place: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]):
    """Runs the command line in that place; returns what it printed, which must be inert, or else its error, and its exit status."""
    monkeypatch.chdir(place)
    for owner, name in ((warnings, "showwarning"), (logging, "lastResort")):
        monkeypatch.setattr(owner, name, getattr(owner, name))

    def run(*words: str) -> tuple[str, int]:
        monkeypatch.setattr(sys, "argv", ["laaciq", *words])
        status: object = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code
        printed, complaints = (part.decode() for part in capfdbinary.readouterr())
        assert_inert(printed)
        assert_inert(complaints)
        assert "Traceback" not in complaints or status == 1
        return printed or complaints, int(str(status))

    return run


RUN = ("run", NAME, "--texts", f"texts {NAME}", "--out", f"out {NAME}", "--method", "rtn", "--served-bound", "100")


@pytest.fixture
def out(command, place: Path) -> Path:
    """A finished run; the command prints it again without computing."""
    printed, status = command(*RUN)
    assert status == 0
    assert f"Report: out {printable(NAME)}/report.html\n" in printed
    return place / f"out {NAME}"


def words_of(printed: str, place: Path) -> list[str]:
    """The words that a program gets if the last line is copied into a shell."""
    line = printed.strip().splitlines()[-1].partition(": ")[2]
    script = f"laaciq() {{ printf '%s\\0' \"$@\"; }}\n{line}"
    child = subprocess.run(["bash", "-c", script], capture_output=True, check=True, cwd=place)
    return [os.fsdecode(word) for word in child.stdout.split(b"\0")[:-1]]


def test_the_next_command_can_be_copied(command, out: Path, place: Path) -> None:
    printed, _ = command(*RUN)
    words = words_of(printed, place)
    assert words[:2] in (["check", f"out {NAME}"], ["run", NAME])
    assert not (place / "x").exists()
    printed, _ = command("quantize", NAME, "--method", "rtn", "--out", "quantized", "--overwrite")
    assert words_of(printed, place) == ["evaluate", "quantized", "--against", NAME]


def test_the_files_of_a_run(command, out: Path) -> None:
    for name in ("report.md", "report.html", "recipe.yaml", "run.json"):
        assert_inert((out / name).read_text())
    recipe = yaml.safe_load((out / "recipe.yaml").read_text())
    assert recipe["texts"] == f"texts {NAME}"
    assert command("run", "--config", str(out / "recipe.yaml"), "--out", f"out {NAME}")[1] == 0


def test_json(command, out: Path) -> None:
    printed, _ = command(*RUN, "--json")
    assert json.loads(printed)["evaluation"]["original"] == NAME


def test_other_commands(command, out: Path) -> None:
    assert command("texts", f"texts {NAME}")[1] == 0
    assert command("survey", NAME, "--texts", f"texts {NAME}")[1] == 0
    assert command("check", f"out {NAME}", "--max-D", "1")[1] in (0, 1)
    assert command("card", f"out {NAME}", "--overwrite")[1] == 0
    text = (out / "checkpoint/README.md").read_text()
    assert_inert(text)
    card = ModelCard(text)
    assert set(card.data.to_dict()) >= {"license", "model-index", "tags"}
    assert "touch x" in card.data.license


@pytest.mark.parametrize("name", ["model_type", "architectures", "hidden_act"])
def test_entries_of_the_configuration(command, place: Path, name: str) -> None:
    shutil.copytree(place / NAME, place / "other", dirs_exist_ok=True)
    config = json.loads((place / "other/config.json").read_text())
    config[name] = [TEXT] if name == "architectures" else TEXT
    (place / "other/config.json").write_text(json.dumps(config))
    printed, status = command("survey", "other", "--texts", f"texts {NAME}")
    assert status == (0 if name == "architectures" else 2)
    assert len(printed.strip().splitlines()) == 1 or status == 0


def test_errors_are_one_line(command, place: Path) -> None:
    (place / "bad").mkdir(exist_ok=True)
    (place / f"bad/{NAME[:60]}.txt").write_text("x")
    (place / "bad.yaml").write_text(yaml.safe_dump({"bits": TEXT}))
    (place / "bad.json").write_text(json.dumps({"method": ANYTHING, ANYTHING: 1}))
    for words in (
        ("run", f"/nowhere/{NAME}"),
        ("texts", "bad"),
        ("texts", "builtin", "--languages", ANYTHING),
        ("run", "--config", "bad.yaml"),
        ("quantize", NAME, "--plan", "bad.json", "--out", "quantized-2", "--texts", f"texts {NAME}"),
        ("check", NAME, "--max-D", "1"),
        ("bench", NAME),
    ):
        printed, status = command(*words)
        assert status == 2, (words, printed)


@pytest.mark.parametrize("payload", ["laaciq run; touch x", "laaciq run $(touch x)\ntouch x", "laaciq run 'x", NAME])
def test_a_command_that_run_json_records(command, out: Path, place: Path, payload: str) -> None:
    """From a stranger's run: printed as words of one command, if at all."""
    shutil.copytree(out, place / "copy", dirs_exist_ok=True)
    marker = json.loads((place / "copy/run.json").read_text())
    (place / "copy/run.json").write_text(json.dumps(marker | {"command": payload, "finished": False}))
    for words in (("card", "copy"), ("check", "copy", "--max-D", "1"), (*RUN[:4], "--out", "copy", *RUN[6:])):
        printed, status = command(*words)
        assert status == 2
        if "To finish it, run: " in printed:
            line = printed.partition("To finish it, run: ")[2]
            subprocess.run(["bash", "-c", f"laaciq() {{ :; }}\n{line}"], check=False, capture_output=True, cwd=place)
        assert not (place / "x").exists()


def test_what_libraries_print(command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings, log records, and the traceback of an error that nobody expected."""

    def noisy(*arguments: object, **options: object) -> None:
        warnings.warn(ANYTHING, stacklevel=1)
        # Where a library has set up no logging, as pytest has here.
        logging.lastResort.handle(logging.makeLogRecord({"msg": ANYTHING, "levelno": logging.WARNING}))
        raise ValueError(ANYTHING)

    monkeypatch.setattr("laaciq.cli.texts.read_texts", noisy)
    complaints, status = command("texts")
    assert status == 1
    assert complaints.count("<script>") == 3
