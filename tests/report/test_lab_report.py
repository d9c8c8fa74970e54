from laaciq.lab.findings import Finding
from laaciq.lab.verdicts import ClaimRow, Decision, LabResult
from laaciq.report.lab_report import lab_markdown, side_by_side
from laaciq.stats.estimate import Estimate


def decision(verdict, value, *, side="below", threshold=0.0, scale="plain"):
    finding = Finding(
        statistic="r", estimate=Estimate(value=value, low=value - 0.1, high=value + 0.1), scale=scale, standard_error=0.05,
        threshold=threshold, side=side, claimed=-0.5, p=0.01, power=0.9, languages=9, independent=8.0,
    )  # fmt: skip
    return Decision(verdict=verdict, finding=finding, corrected_p=0.02)


def result(models):
    absent = Decision(verdict="not applicable", reason="no outliers", needed="some")
    rows = {
        "both": {"one": decision("supported", -0.5), "two": decision("undecided", 0.05)},
        "one-alone": {"one": decision("refuted", 0.5), "two": absent},
        "unlike": {"one": decision("supported", -0.5), "two": decision("refuted", -0.5, side="above")},
        "neither": {"one": absent, "two": absent},
    }
    return LabResult(
        models=models, texts="builtin", quick=True, languages={model: ["eng"] for model in models}, command="laaciq lab run",
        rows=[
            ClaimRow(name=name, words="w", place="p", rule="r", decisions={m: by_model[m] for m in models})
            for name, by_model in rows.items()
        ],
    )  # fmt: skip


def test_models_stand_side_by_side_for_claims_that_have_a_finding():
    assert list(side_by_side(result(["one", "two"]))) == [
        ["claim", "claimed", "one", "two", "pooled"],
        ["both", "below 0", "supported −0.5 [−0.6, −0.4]", "0.05 [−0.05, 0.15]", ""],
        ["one-alone", "below 0", "refuted 0.5 [0.4, 0.6]", "–", ""],
        ["unlike", "below 0; above 0", "supported −0.5 [−0.6, −0.4]", "refuted −0.5 [−0.6, −0.4]", ""],
    ]


def test_one_model_has_no_such_table():
    assert "side by side" in lab_markdown(result(["one", "two"]))
    assert "side by side" not in lab_markdown(result(["one"]))
