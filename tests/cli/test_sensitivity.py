import json

from typer.testing import CliRunner

from laaciq.cli import app
from laaciq.cli.sensitivity import sensitivity_table
from laaciq.studies.sensitivity import Sensitivity
from tests.cli.rendering import assert_legible
from tests.tiny import save_tiny


def test_losses_by_part_are_legible_in_narrow_terminals(tmp_path):
    model = save_tiny("llama", tmp_path / "model", num_hidden_layers=8)
    words = ["sensitivity", str(model), "--languages", "eng,swa", "--passages", "2", "--bits", "3"]
    words += ["--group-size", "16", "--served-bound", "100", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    result = Sensitivity.model_validate(json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout))
    losses = [f"{1000 * loss.value:z.1f}" for by_part in result.loss.values() for loss in by_part]
    assert_legible(sensitivity_table(result), *losses)
    assert "swa Swahili" in result._repr_html_()
