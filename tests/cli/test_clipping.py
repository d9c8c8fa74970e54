import json

import pytest
import typer
from typer.testing import CliRunner

from laaciq.cli.clipping import clipping
from laaciq.errors import BadOption

app = typer.Typer()
app.command()(clipping)


def test_tables_hold_the_known_thresholds():
    shown = CliRunner().invoke(app, ["--bits", "2,4"]).stdout
    assert "2.523" in shown
    assert "3.480" in shown
    assert "published" in shown


def test_json_is_the_same_in_full():
    result = json.loads(CliRunner().invoke(app, ["--bits", "3", "--json"]).stdout)
    assert round(result["thresholds"][0]["noise_model_published_step"]["3"], 3) == 2.069
    assert result["coefficients"]["published"] == {}
    assert len(result["errors"]["fitted"]) == 20
    assert {row["bits"] for row in result["sharing"]} == {3}


@pytest.mark.parametrize("bits", ["", "four", "9", "1"])
def test_bits_that_have_no_formula_are_refused(bits):
    assert isinstance(CliRunner().invoke(app, ["--bits", bits]).exception, BadOption)
