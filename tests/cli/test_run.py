import json
import sys

import pytest
from typer.testing import CliRunner

from laaciq.cli import app, main
from laaciq.commands.run import RunResult
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    save_tiny("llama", folder / "model")
    words = [
        "run",
        str(folder / "model"),
        "--languages",
        "eng,swa,Hindi",
        "--bits",
        "2",
        "--served-bound",
        "100",
        "--method",
        "rtn",
    ]
    words += ["--group-size", "channel", "--out", str(folder / "out")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return folder, words, result.stdout


def test_the_table_names_languages_loss_and_next_command(finished):
    _, _, shown = finished
    assert "swa Swahili" in shown
    assert "laaciq check" in shown
    assert "report.html" in shown
    words = " ".join(shown.split())
    assert "r(R̂, D) is undefined: no block is an outlier block" in words
    assert "r(κ_eff, D) is undefined: 3 languages are too few, and 4 are needed" in words
    assert "after correction for their number" in words


def test_the_run_can_be_repeated_by_its_recipe(finished):
    folder, words, _ = finished
    again = ["run", "--config", str(folder / "out/recipe.yaml"), "--out", str(folder / "out"), "--json"]
    assert (folder / "out/recipe.yaml").read_text().startswith("# Read by: laaciq run --config recipe.yaml\nmodel: ")
    # Another command would be refused in the same folder.
    repeated = json.loads(CliRunner().invoke(app, again).stdout)
    assert repeated == json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)


def test_json_is_json(finished):
    _, words, _ = finished
    result = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [r["language"] for r in result["evaluation"]["languages"]] == ["eng", "swa", "hin"]
    assert "Swahili" in RunResult.model_validate(result)._repr_html_()
    assert result["options"]["bits"] == result["plans"]["plans"][""]["tensors"][0]["bits"] == 2


def test_generate_adds_continuations(finished):
    folder, words, _ = finished
    asked = [*words, "--generate", "--prompts", "2", "--overwrite"]
    results = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["generation"]
    assert [(r["language"], r["prompts"]) for r in results] == [("eng", 2), ("swa", 2), ("hin", 2)]
    assert "Greedy continuations of the same prompts" in CliRunner().invoke(app, asked).stdout
    for file in ("report.html", "report.md"):
        assert all(word in (folder / "out" / file).read_text() for word in ("Continuations", "garbled", "McNemar"))


def test_check_judges_what_run_wrote(finished):
    folder, _, _ = finished
    result = CliRunner().invoke(app, ["check", str(folder / "out"), "--max-D", "1000"])
    assert (result.exit_code, result.stdout[:4]) == (0, "PASS")


def test_evaluate_takes_what_run_made(finished):
    folder, _, _ = finished
    words = ["evaluate", str(folder / "out/checkpoint"), "--against", str(folder / "model"), "--languages", "eng"]
    words += ["--out", str(folder / "evaluated")]
    result = CliRunner().invoke(app, [*words, "--served-bound", "100", "--json"])
    assert json.loads(result.stdout)["languages"][0]["language"] == "eng"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "/nowhere"],
        ["run", "--languages", "xyz"],
        ["run", "--bits", "9"],
        ["run", "--method", "magic"],
        ["run", "--group-size", "many"],
        ["run", "--texts", "/nowhere"],
        ["check", "/nowhere", "--max-D", "1"],
        ["evaluate", "/nowhere", "--against", "reference"],
    ],
)
def test_bad_input_is_one_sentence_and_status_2(words, tmp_path, monkeypatch, capsys):
    """No traceback may reach the user, nothing may be written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["laaciq", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("laaciq: ")
    assert len(printed.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
