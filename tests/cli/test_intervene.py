import json

from typer.testing import CliRunner

from laaciq.cli import app
from laaciq.cli.intervene import intervention_table
from laaciq.studies.intervention import Intervention
from tests.cli.rendering import assert_legible, rendered
from tests.tiny import save_tiny


def test_an_intervention_is_a_table_and_the_same_as_json(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    words = ["intervene", str(model), "--languages", "eng,swa", "--passages", "2", "--kurtosis", "40", "--blocks", "1"]
    words += ["--group-size", "16", "--served-bound", "100", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "κ = 40" in shown.stdout and "no logit changes" in " ".join(shown.stdout.split())
    result = Intervention.model_validate(json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout))
    assert_legible(intervention_table(result), *(level.name for level in result.levels))
    assert "effect on disparity" in " ".join(rendered(intervention_table(result), 200))
    assert "κ = 40" in result._repr_html_()
