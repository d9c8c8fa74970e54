"""Results show themselves in notebooks as the command line would."""

from importlib import import_module

import pytest

from laaciq.cli.notebook import TABLES
from laaciq.engine.display import Displayed
from tests.cli.results import evaluation

RESULTS = {
    "Comparison": "laaciq.studies.comparison",
    "Evaluation": "laaciq.evaluation.results",
    "Gateway": "laaciq.studies.gateway",
    "Intervention": "laaciq.studies.intervention",
    "LabResult": "laaciq.lab.verdicts",
    "MixtureStudy": "laaciq.studies.mixture_results",
    "Profile": "laaciq.profiling.results",
    "RunResult": "laaciq.commands.run",
    "Sensitivity": "laaciq.studies.sensitivity",
    "Sweep": "laaciq.studies.sweep",
}


def test_an_evaluation_is_a_table_in_html():
    html = evaluation({"eng": 0.018, "swa": 0.048})._repr_html_()
    assert html.startswith("<pre") and html.endswith("</pre>")
    assert "swa Swahili" in html and "4.8 %" in html
    assert "<html" not in html


def test_what_users_wrote_is_escaped():
    result = evaluation({"eng": 0.018, "swa": 0.048}).model_copy(update={"original": "<script>alert()</script>"})
    assert "<script>" not in result._repr_html_()


@pytest.mark.parametrize("name", TABLES)
def test_every_result_has_a_table(name):
    kind = getattr(import_module(RESULTS[name]), name)
    assert issubclass(kind, Displayed)
    module, _, function = TABLES[name].partition(":")
    assert callable(getattr(import_module(module), function))
