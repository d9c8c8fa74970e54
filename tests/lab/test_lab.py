"""`laaciq lab run` from measurements to the report, on tiny models."""

import json

import pytest
from typer.testing import CliRunner

import laaciq
from laaciq.cli import app
from laaciq.errors import BadOption
from laaciq.lab.claims import CLAIMS
from laaciq.lab.findings import TooFew
from laaciq.lab.measurements import MEASUREMENTS, Bench
from laaciq.lab.verdicts import LabResult
from laaciq.options import MeasureOptions
from laaciq.trials.session import Session
from tests.tiny import save_tiny

FEW = {"passages": 3, "languages": ["eng", "swa", "hin"], "served_bound": 99.0}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    # Six blocks, the fewest that sets of three blocks are tried on; and two, for which they do not apply.
    save_tiny("llama", folder / "one", num_hidden_layers=6)
    save_tiny("gpt2", folder / "two")
    return [folder / "one", folder / "two"]


def test_every_claim_needs_measurements_that_exist_and_every_measurement_is_needed():
    needed = {name for claim in CLAIMS.values() for name in claim.needs}
    assert needed <= MEASUREMENTS.keys()
    assert MEASUREMENTS.keys() <= needed
    for claim in CLAIMS.values():
        assert claim.words and claim.place and claim.rule.endswith((".", ".)"))


def test_list_prints_every_claim_and_what_no_data_reach():
    listed = json.loads(CliRunner().invoke(app, ["lab", "list", "--json"]).stdout)
    assert [claim["name"] for claim in listed["claims"]] == list(CLAIMS)
    assert any("−0.998" in figure["figure"] for figure in listed["unverifiable"])
    shown = CliRunner().invoke(app, ["lab", "list"], env={"COLUMNS": "200"}).stdout
    assert all(name in shown for name in CLAIMS)


def test_a_language_that_is_served_on_one_text_alone_has_no_losses(models):
    """Not in more tokens either: both sides of a comparison have the same languages."""

    def bench(bound, languages=("eng", "swa", "hin", "deu", "fin", "yor")):
        options = MeasureOptions(served_bound=bound)
        session = Session.open(models[0], "builtin", options, languages=list(languages), passages=3, device="cpu")
        return Bench(session, quick=True)

    free = bench(99.0)
    on_test = {code: losses.bits_per_byte for code, losses in free.session.original_losses(free.test).items()}
    more = {row.language: on_test[row.language] - row.bits_per_byte for row in free.profile.languages}
    near = max(more, key=more.__getitem__)
    assert more[near] > 0
    bound = on_test[near] - more[near] / 2
    bounded = bench(bound)
    assert near in bounded.measured
    usual, split = (MEASUREMENTS[name].measure(bounded) for name in ("rtn-4", "split-tokens"))
    assert near in bounded.served
    assert near not in usual.codes and bounded.measured == usual.codes
    assert split.codes == usual.codes == bounded.sets_text.languages
    with pytest.raises(TooFew, match="served-bound"):
        MEASUREMENTS["rtn-4"].measure(bench(bound, [near]))


def test_two_models_are_judged_and_a_second_run_measures_nothing(models, tmp_path, monkeypatch):
    out = tmp_path / "lab"
    result = laaciq.run_lab(models, quick=True, out=out, **FEW)
    assert result.models == ["one", "two"]
    assert {row.name for row in result.rows} == set(CLAIMS)
    for row in result.rows:
        assert set(row.decisions) == {"one", "two"}
        for decision in row.decisions.values():
            # Three languages decide nothing; what is in the weights is known exactly.
            exact = decision.finding is not None and decision.finding.standard_error == 0
            assert exact or decision.verdict in ("undecided", "not applicable"), row.name
    unlike = {name: result["gateway-necessary"].decisions[name].verdict for name in result.models}
    assert unlike == {"one": "undecided", "two": "not applicable"}
    assert "one" in (out / "report.md").read_text() and "<svg" in (out / "report.html").read_text()
    assert LabResult.model_validate_json((out / "lab.json").read_text()) == result
    monkeypatch.setattr("laaciq.trials.tasks.CandidateLosses.run", lambda *_: pytest.fail("measured again"))
    assert laaciq.run_lab(models, quick=True, out=out, **FEW) == result


def test_an_unknown_claim_is_refused_with_the_nearest_name():
    with pytest.raises(BadOption, match="did you mean 'effective-kurtosis'"):
        laaciq.run_lab(["reference"], claims=["effective-kurtosi"])
