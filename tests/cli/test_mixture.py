import json

import pytest
from typer.testing import CliRunner

from laaciq.cli import app
from laaciq.cli.mixture import mixture_table
from laaciq.cli.options import split_numbers
from laaciq.errors import BadOption, UnknownLanguage
from laaciq.studies.mixture_results import MixtureStudy
from laaciq.studies.recommendation import degradation
from tests.cli.rendering import assert_legible
from tests.tiny import save_tiny

QUICK = [
    "--languages",
    "eng,swa",
    "--calibration-passages",
    "1",
    "--rounds",
    "0",
    "--passages",
    "2",
    "--leave-out",
    "swa",
]
QUICK += ["--served-bound", "100", "--bits", "3", "--group-size", "16"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(save_tiny("llama", tmp_path_factory.mktemp("models") / "llama"))


def test_a_table_a_page_and_the_same_as_json(tiny, tmp_path):
    command = ["mixture", tiny, *QUICK, "--out", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, command, env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    result = MixtureStudy.model_validate(json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout))
    assert result == MixtureStudy.model_validate_json((tmp_path / "run/mixture.json").read_text())
    assert (result.bits, result.group_size, result.symmetric, result.test_passages) == (3, 16, False, 2)
    assert_legible(mixture_table(result), *(degradation(setting.worst) for setting in result.settings))
    assert "English only" in result._repr_html_()
    words = " ".join(shown.stdout.split())
    assert result.recommendation.sentence in words
    assert all(name in words for name in ("equal", "proportional", "minimax", "English only", "Swahili loses"))
    assert result.recommendation.sentence in (tmp_path / "run/report.html").read_text()


def test_what_cannot_be_done_is_said(tiny, tmp_path):
    def refusal(*more):
        return CliRunner().invoke(app, ["mixture", tiny, "--out", str(tmp_path / "run"), *more]).exception

    assert isinstance(refusal("--languages", "swa,hin"), UnknownLanguage)
    assert isinstance(refusal("--languages", "eng,swa", "--leave-out", "tam"), UnknownLanguage)
    assert isinstance(refusal("--calibration-passages", "few"), BadOption)
    assert split_numbers("passages", "1, 5,") == (1, 5)
