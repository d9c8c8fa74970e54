import json

import pytest
from typer.testing import CliRunner

import laaciq
from laaciq.cli import app
from laaciq.commands.check import judge
from laaciq.engine.run_folder import RunFolder
from laaciq.errors import BadOption
from laaciq.evaluation.results import Disparity, Estimate, Evaluation, LanguageResult, Likelihood, Summary

NAMES = {"jpn": "Japanese", "eng": "English", "swa": "Swahili", "amh": "Amharic"}


def language(code, value=0.0, low=None, high=None, *, served=True, collapsed=False, documents=12):
    degradation = Estimate(value=value, low=value if low is None else low, high=value if high is None else high)
    text = Likelihood(nll_per_token=1.0, perplexity=2.7, bits_per_byte=1.0)
    return LanguageResult(
        language=code,
        name=NAMES[code],
        script="Latn",
        passages=documents,
        documents=documents,
        tokens=100,
        bytes=100,
        original=text,
        quantized=text,
        loss=degradation,
        degradation=None if collapsed else degradation,
        relative_bits=degradation,
        bits_per_passage=None,
        kl_per_token=0.0,
        top_agreement=1.0,
        served=served,
        collapsed=collapsed,
        p=None,
        hurt=False,
        hurt_corrected=False,
    )


@pytest.fixture
def written(tmp_path):
    """Writes an evaluation of these languages to a file."""

    def write(*languages, disparity=None):
        judged = sorted((r for r in languages if r.judged), key=lambda r: r.degradation.value)
        result = None
        if len(judged) > 1:
            spread = judged[-1].degradation.value - judged[0].degradation.value
            low, high = disparity or (spread, spread)
            result = Disparity(
                worst=judged[-1].degradation,
                plug_in=Estimate(value=spread, low=low, high=high),
                cross_fitted=spread,
                cross_fitted_worst=spread,
                noise_floor=0.0,
                between_deviation=0.0,
                heterogeneity_p=0.5,
                worst_language=judged[-1].language,
                best_language=judged[0].language,
            )
        summary = Summary(
            mean=None,
            worst_quarter=None,
            worst_quarter_languages=[],
            hurt_share=None,
            hurt_corrected_share=None,
            half_loss_passage_share=None,
            collapsed=[r.language for r in languages if r.served and r.collapsed],
            not_served=[r.language for r in languages if not r.served],
            rankings_agree=True,
            worst_by={},
        )
        evaluation = Evaluation(
            original="model",
            quantized="small",
            texts="texts",
            parallel=True,
            served_bound=4.0,
            languages=list(languages),
            disparity=result,
            summary=summary,
            verdict="",
        )
        path = tmp_path / "evaluation.json"
        path.write_text(evaluation.model_dump_json())
        return path

    return write


def invoke(*words):
    result = CliRunner().invoke(app, ["check", *map(str, words)])
    return result.exit_code, result.stdout.splitlines()


BEYOND, WITHIN, UNCERTAIN = (0.06, 0.055, 0.09), (0.02, 0.01, 0.04), (0.04, 0.01, 0.08)
NOISY = (0.06, 0.01, 0.09)  # the estimate exceeds the limit, the lower end does not


@pytest.mark.parametrize(
    ("interval", "documents", "estimate", "upper", "lower"),
    [
        (BEYOND, 12, "FAIL", "FAIL", "FAIL"),
        (NOISY, 12, "FAIL", "FAIL", "PASS"),
        (UNCERTAIN, 12, "PASS", "INCONCLUSIVE", "PASS"),
        (WITHIN, 12, "PASS", "PASS", "PASS"),
        ((0.05, 0.05, 0.05), 12, "PASS", "PASS", "PASS"),
        (BEYOND, 7, "FAIL", "FAIL", "INCONCLUSIVE"),
        (WITHIN, 7, "INCONCLUSIVE", "INCONCLUSIVE", "INCONCLUSIVE"),
    ],
)
def test_the_rule(interval, documents, estimate, upper, lower):
    value, low, high = interval
    measured = Estimate(value=value, low=low, high=high)
    for judged_by, expected in {"estimate": estimate, "upper end": upper, "lower end": lower}.items():
        assert judge(measured, 0.05, judged_by, documents=documents) == expected


def test_the_demo_s_limits_fail_by_the_estimate(written):
    """Japanese lost 5.9 % and disparity was 7.6 %; judged by the lower end, the gate let both through."""
    run = written(language("jpn", 0.059, 0.02, 0.09), language("eng", -0.017, -0.04, 0.01), disparity=(0.011, 0.08))
    words = (run, "--max-D", 0.05, "--max-disparity", 0.03)
    status, lines = invoke(*words)
    assert status == 1
    assert lines == [
        "FAIL --max-D 0.05, judged by the estimate: 1 language of 2 fails: Japanese 5.90 % [2.00 %, 9.00 %]",
        "FAIL --max-disparity 0.03, judged by the estimate: 7.60 % [1.10 %, 8.00 %], from Japanese to English",
    ]
    status, lines = invoke(*words, "--lenient")
    assert status == 0
    assert lines[0] == (
        "PASS --max-D 0.05, judged by the lower end: the worst of 2 languages is Japanese 5.90 % [2.00 %, 9.00 %]"
    )


def test_every_language_that_does_not_pass_is_named(written):
    run = written(
        language("swa", *UNCERTAIN),
        language("jpn", *BEYOND),
        language("eng", *WITHIN),
        language("amh", 9.0, served=False, documents=1),
    )
    status, lines = invoke(run, "--max-D", 0.05, "--strict")
    assert status == 1
    assert lines == [
        "FAIL --max-D 0.05, judged by the upper end: 1 language of 3 fails: Japanese 6.00 % [5.50 %, 9.00 %]; "
        "1 language of 3 is inconclusive: Swahili 4.00 % [1.00 %, 8.00 %]; 1 not judged, since the original does not serve it"
    ]
    printed = CliRunner().invoke(app, ["check", str(run), "--max-D", "0.05", "--strict", "--json"])
    result = json.loads(printed.stdout)
    assert (printed.exit_code, result["verdict"], result["limits"][0]["verdict"]) == (1, "FAIL", "FAIL")
    assert [(entry["language"], entry["verdict"]) for entry in result["limits"][0]["languages"]] == [
        ("jpn", "FAIL"),
        ("swa", "INCONCLUSIVE"),
    ]
    assert result["limits"][0]["languages"][1]["degradation"] == {"value": 0.04, "low": 0.01, "high": 0.08}


def test_inconclusive_has_a_status_of_its_own(written):
    run = written(language("swa", *UNCERTAIN), language("eng", *WITHIN), disparity=(0.0, 0.05))
    assert invoke(run, "--max-D", 0.05, "--strict")[0] == 3
    status, lines = invoke(run, "--max-D", 0.09, "--max-disparity", 0.03, "--strict")
    assert status == 3
    assert [line.split()[0] for line in lines] == ["PASS", "INCONCLUSIVE"]
    nothing = written(language("amh", 9.0, served=False))
    status, lines = invoke(nothing, "--max-D", 0.05)
    assert status == 3
    assert "serves no language" in lines[0]


def test_a_collapsed_language_fails_both_limits(written):
    run = written(
        language("jpn", 40.0, collapsed=True), language("eng", *WITHIN), language("swa", *WITHIN), disparity=(0, 0)
    )
    for mode in ((), ("--lenient",)):
        status, lines = invoke(run, "--max-D", 1e6, "--max-disparity", 1e6, *mode)
        assert status == 1
        assert all(line.startswith("FAIL") and "Japanese collapsed" in line for line in lines)


def test_one_language_alone_fails_the_disparity(written):
    status, lines = invoke(written(language("eng")), "--max-disparity", 1)
    assert status == 1
    assert "fewer than two languages can be compared" in lines[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "nothing to check"),
        ({"max_degradation": 0.1, "strict": True, "lenient": True}, "give one of them"),
        *(({name: bad}, "cannot be") for name in ("max_degradation", "max_disparity") for bad in (-0.1, float("nan"))),
        ({"max_disparity": float("inf")}, "cannot be"),
    ],
)
def test_wrong_options_are_refused(written, options, says):
    with pytest.raises(BadOption, match=says):
        laaciq.check(written(language("eng")), **options)


def test_a_run_s_folder_must_be_finished(written, tmp_path):
    file = written(language("eng"))
    store = RunFolder(tmp_path / "run", description={"command": "laaciq run"})
    (tmp_path / "run/evaluation.json").write_text(file.read_text())
    with pytest.raises(BadOption, match=r"not finished. To finish it, run: laaciq run --out .*/run$"):
        laaciq.check(tmp_path / "run", max_degradation=0.1)
    store.finish()
    assert laaciq.check(tmp_path / "run", max_degradation=0.1).verdict == "PASS"
    for bad in ("{}", None):
        (tmp_path / "run/evaluation.json").write_text(bad) if bad else (tmp_path / "run/evaluation.json").unlink()
        with pytest.raises(BadOption, match=r"no evaluation|evaluation\.json is not valid"):
            laaciq.check(tmp_path / "run", max_degradation=0.1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: e["languages"][0]["degradation"].update(value=float("nan")), "NaN or infinity at languages"),
        (lambda e: e["languages"][0]["degradation"].update(value="0.0"), "should be a valid number"),
        (lambda e: e["languages"][0]["degradation"].update(low=5.0, high=-5.0), "interval"),
        (lambda e: e["languages"][0].update(degradation=None), "collapse"),
        (lambda e: e["languages"][0].update(documents=0), "documents"),
        (lambda e: e["languages"].append(e["languages"][0]), "twice"),
        (lambda e: e["languages"].clear(), "languages"),
        (lambda e: e["disparity"].update(worst_language="zzz"), "zzz"),
        (lambda e: e.update(disparity=None), "disparity"),
        (lambda e: e["summary"].update(collapsed=["eng"]), "collapsed"),
        (lambda e: e.update(other=1), "other is not known"),
    ],
)
def test_an_evaluation_that_contradicts_itself(written, change, says):
    file = written(language("eng", 0.01), language("swa", 0.02))
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(BadOption, match=rf"\.json .*{says}"):
        laaciq.check(file, max_degradation=1.0)
