import json

from typer.testing import CliRunner

from laaciq.cli import app
from laaciq.cli.sweep import sweep_table
from laaciq.studies.sweep import Sweep
from tests.cli.rendering import assert_legible, rendered
from tests.tiny import save_tiny


def test_a_sweep_is_a_table_and_the_same_as_json(tmp_path):
    model = save_tiny("llama", tmp_path / "model")
    words = ["sweep", str(model), "--languages", "eng,swa", "--passages", "2", "--bits", "2,3,4,6,8"]
    words += ["--group-size", "16", "--served-bound", "100", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "swa Swahili" in shown.stdout and "bits for 5 %" in shown.stdout
    result = Sweep.model_validate(json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout))
    losses = [
        f"{100 * loss.value:z.1f}" for by_bits in result.degradation.values() for loss in by_bits.values() if loss
    ]
    assert_legible(sweep_table(result), *losses)
    assert "swa Swahili" in result._repr_html_()
    # Where the table is too wide, a collapsed language is one that lost more than 900 %.
    collapsed = result.model_copy(
        update={"degradation": {code: dict.fromkeys(result.bits) for code in result.languages}}
    )
    assert "collapsed" in " ".join(rendered(sweep_table(collapsed), 120))
    assert_legible(sweep_table(collapsed), *result.languages)
    assert ">900" in " ".join(rendered(sweep_table(collapsed), 50))
