"""TAB offers the values that an option takes."""

import pytest
from typer.testing import CliRunner

from laaciq.backends import NAMES
from laaciq.backends.registry import BACKENDS
from laaciq.cli import app


def offered(*words):
    """What bash offers in the place of the last word."""
    environment = {"_LAACIQ_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["laaciq", *words])}
    environment["COMP_CWORD"] = str(len(words))
    return CliRunner().invoke(app, [], prog_name="laaciq", env=environment).stdout.split()


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["sw"], ["sweep"]),
        (["run", "--effort", ""], ["fast", "full"]),
        (["run", "--method", "mi"], ["minimax"]),
        (["run", "--group-size", "c"], ["channel"]),
        (["run", "--bits", ""], ["2", "3", "4", "5", "6", "7", "8"]),
        (["run", "--texts", "flo"], ["flores200"]),
        (["run", "--languages", "ta"], ["tam"]),
        (["run", "--languages", "eng,ta"], ["eng,tam"]),
        (["quantize", "--hold-out", "swa,ta"], ["swa,tam"]),
        (["compare", "--methods", "gptq,nf"], ["gptq,nf4"]),
        (["evaluate", "--device", "c"], ["cpu", "cuda"]),
        (["export", "--format", "g"], ["gptq", "gguf"]),
        (["sensitivity", "--part", ""], ["calibration", "test"]),
    ],
    ids=" ".join,
)
def test_choices(words, values):
    assert offered(*words) == values


def test_languages_of_a_folder(tmp_path):
    for code in ("sme", "smn"):
        (tmp_path / f"{code}.txt").write_text("Bures.\n")
    assert offered("run", "--texts", str(tmp_path), "--languages", "s") == ["sme", "smn"]


def test_names_of_back_ends_are_those_of_the_registry():
    assert tuple(BACKENDS) == NAMES
