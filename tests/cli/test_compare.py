import json

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

import laaciq
from laaciq.backends.registry import BACKENDS
from laaciq.cli import app
from laaciq.cli.compare import compare_table
from laaciq.errors import BadOption
from laaciq.evaluation import Estimate
from laaciq.studies.comparison import Comparison
from tests.cli.rendering import assert_legible, rendered
from tests.tiny import save_tiny

QUICK = ["--languages", "eng,swa", "--passages", "2", "--served-bound", "100"]

PLAIN = {"languages": ["eng", "swa"], "passages": 2, "served_bound": 100.0}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(save_tiny("gpt2", tmp_path_factory.mktemp("models") / "gpt2"))


def test_a_table_a_page_and_the_same_as_json(tiny, tmp_path, monkeypatch):
    missing = BACKENDS["hqq"].__class__(**{**vars(BACKENDS["hqq"]), "library": "no_such_library"})
    monkeypatch.setitem(BACKENDS, "hqq", missing)
    command = [
        "compare",
        tiny,
        "--methods",
        "effective, rtn,hqq",
        "--calibration",
        "eng",
        *QUICK,
        "--out",
        str(tmp_path / "run"),
    ]
    shown = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    assert "hqq: no_such_library is not installed: run pip install '.[hqq]' in your clone" in " ".join(
        shown.stdout.split()
    )
    # R̂ is two characters in one cell.
    assert all(cell_len(line) <= 80 or line.startswith("Report") for line in shown.stdout.splitlines())
    again = CliRunner().invoke(app, [*command, "--json"])
    result = Comparison.model_validate(json.loads(again.stdout))
    assert {row.method for row in result.measured} == {"effective", "rtn"}
    assert result["rtn"].evaluation.parallel
    words = shown.stdout.split()
    assert f"{result['rtn'].made.block_bits_per_weight:.3f}" in words and result["rtn"].worst.language in words
    # Said once for all methods.
    assert " ".join(words).count("r(R̂, D) is undefined") == 1
    assert set(result.theory) == {"effective", "rtn"}
    assert "calibration: eng" in (tmp_path / "run/recipe.yaml").read_text()
    page = (tmp_path / "run/report.html").read_text()
    assert "<svg" in page and "calibrated on English" in page and result.command.split()[0] in page
    assert "--calibration eng" in result.command and "--methods effective,rtn,hqq" in result.command


def test_long_names_and_large_losses_are_legible_in_narrow_terminals(tiny, tmp_path):
    comparison = laaciq.compare(tiny, methods=["rtn"], bits=2, out=tmp_path, **PLAIN)
    row = comparison["rtn"]
    large = Estimate(value=2.111, low=0.987, high=3.234)
    worst = row.worst.model_copy(update={"degradation": large, "loss": large})
    evaluation = row.evaluation.model_copy(update={"languages": [worst], "disparity": None})
    made = row.made.model_copy(update={"seconds": 1234.0})
    long = row.model_copy(update={"method": "llmcompressor-gptq", "evaluation": evaluation, "made": made})
    result = comparison.model_copy(update={"rows": [long]})
    assert_legible(compare_table(result), "211 %", "llmcompressor-gptq")
    assert "llmcompressor-gptq" in result._repr_html_()
    assert "98.7 to 323" in " ".join(rendered(compare_table(result), 80))


def test_what_cannot_be_done_is_said(tiny, tmp_path):
    def refusal(*more):
        return CliRunner().invoke(app, ["compare", tiny, *QUICK, "--out", str(tmp_path / "run"), *more]).exception

    assert isinstance(refusal("--methods", "rtnn"), BadOption)
    assert isinstance(refusal("--bits", "9"), BadOption)
    assert isinstance(refusal("--calibration", "nowhere"), BadOption)
    assert not (tmp_path / "run").exists()


def test_back_ends_are_listed():
    shown = CliRunner().invoke(app, ["backends"], env={"COLUMNS": "200"}).stdout
    assert all(name in shown for name in BACKENDS)
    listed = json.loads(CliRunner().invoke(app, ["backends", "--json"]).stdout)
    assert {entry["name"]: entry["installed"] for entry in listed} == {
        n: entry.installed for n, entry in BACKENDS.items()
    }
    assert all(entry["installed"] or f"'.[{entry['extra']}]'" in shown for entry in listed)
