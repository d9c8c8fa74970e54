import json

import pytest
from typer.testing import CliRunner

from laaciq.cli import app
from laaciq.cli.gateway import gateway_table
from laaciq.errors import BadOption
from laaciq.studies.gateway import Gateway
from tests.cli.rendering import assert_legible
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway")
    save_tiny("llama", folder / "model", num_hidden_layers=4)
    words = ["gateway", str(folder / "model"), "--protect", "2", "--languages", "eng,swa", "--bits", "3"]
    words += ["--served-bound", "100", "--group-size", "16", "--method", "mse", "--out", str(folder / "out")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return folder, words, result.stdout


def test_the_table_says_what_was_found(finished):
    folder, _, shown = finished
    shown = " ".join(shown.split())
    result = Gateway.model_validate_json((folder / "out/gateway.json").read_text())
    best = "{" + ", ".join(map(str, result.best().blocks)) + "}"
    assert f"Best by worst loss on validation text: {best}." in shown
    assert "First, best, last {0, 3}: rank" in shown
    assert "No protection: worst loss on test text minus the best set's:" in shown
    assert "among 6 sets" in shown
    assert f"Chosen on {result.validation_tokens:,} validation tokens" in shown
    assert result.method == "mse"


def test_losses_are_legible_in_narrow_terminals(finished):
    folder, _, _ = finished
    result = Gateway.model_validate_json((folder / "out/gateway.json").read_text())
    assert_legible(gateway_table(result), *(f"{1000 * tested.worst.value:z.1f}" for tested in result.tested))
    assert "protected" in result._repr_html_()


def test_json_is_the_result(finished):
    folder, words, _ = finished
    shown = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert shown == json.loads((folder / "out/gateway.json").read_text())


def test_the_command_is_noted(finished):
    folder, _, _ = finished
    command = json.loads((folder / "out/run.json").read_text())["command"]
    assert command.startswith("laaciq gateway ")
    assert "--protect 2" in command
    assert "--method mse" in command


@pytest.mark.parametrize("words", [["--protect", "4"], ["--protect", "0"], ["--method", "minimax"]])
def test_bad_options_leave_no_folder(finished, tmp_path, words):
    folder, _, _ = finished
    result = CliRunner().invoke(app, ["gateway", str(folder / "model"), "--out", str(tmp_path / "out"), *words])
    assert isinstance(result.exception, BadOption)
    assert not (tmp_path / "out").exists()
