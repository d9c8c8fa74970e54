"""Verdicts of a table, and what models say together."""

import numpy as np
import pytest

from laaciq.lab.claim import Claim
from laaciq.lab.findings import Finding, TooFew
from laaciq.lab.rules import Claimed, exactly, from_draws, from_error, from_interval
from laaciq.lab.verdicts import judge, pool, verdict_rows
from laaciq.stats.estimate import Estimate

BELOW = Claimed(statistic="ratio", threshold=1.0, side="below", claimed=0.5)
SHARE = Claimed(statistic="share", threshold=0.01, side="below", claimed=0.003)


def ratio(value, error=0.2, freedom=20, claim=BELOW):
    return from_error(value, error, freedom=freedom, claim=claim, languages=32, scale="log")


def open_ratio(value):
    return from_interval(Estimate(value=value, low=0.0, high=np.inf), claim=BELOW, languages=32, scale="log")


def test_exact_findings_change_no_other_verdict():
    """Benjamini and Hochberg's correction loosens with each p of 0 that enters it."""
    random = np.random.default_rng(0)
    noisy = {n: ratio(float(np.exp(0.2 * random.standard_normal()))) for n in range(100)}
    noisy["near"] = ratio(0.51)
    exact = {f"exact {n}": exactly(0.003, claim=SHARE) for n in range(200)} | {"at": exactly(0.01, claim=SHARE)}
    alone, together = judge(noisy), judge(noisy | exact)
    assert {name: together[name] for name in noisy} == alone
    assert alone["near"].verdict == "undecided"
    assert {together[name].verdict for name in exact if name != "at"} == {"supported"}
    assert all(together[name].corrected_p == exact[name].p for name in exact)
    assert together["at"].verdict == "undecided"


def test_draws_that_all_agree_are_corrected_too():
    """Of 99 draws none shows the threshold: p = 0.02, and of ten findings 0.2."""
    agreeing = from_draws(0.001, np.full(99, 0.001), claim=SHARE, languages=32)
    assert agreeing.standard_error == 0
    table = judge({"draws": agreeing} | {n: ratio(1.0) for n in range(9)})
    assert table["draws"].corrected_p == pytest.approx(0.2)


def test_models_are_pooled_on_the_scale_of_the_effect():
    """Equal errors, and no variance between models but what the effects show: the geometric mean."""
    pooled = pool({"reference": ratio(0.4), "gemma": ratio(0.9)})
    assert isinstance(pooled, Finding)
    assert pooled.estimate.value == pytest.approx(np.sqrt(0.4 * 0.9), rel=1e-6)
    assert pooled.scale == "log" and pooled.languages == 64
    assert pooled.note.startswith("Over reference, gemma. ")


def test_models_that_agree_by_chance_are_not_more_certain_than_their_errors_allow():
    """Two models: at best the fixed-effect error, 0.2/√2, by Student's t on one degree of freedom."""
    pooled = pool({"reference": ratio(0.5), "gemma": ratio(0.501)})
    assert pooled.standard_error == pytest.approx(0.2 / np.sqrt(2), rel=1e-6)
    # qt(0.975, 1) = 12.706.
    assert np.log(pooled.estimate.high / pooled.estimate.value) == pytest.approx(12.706 * 0.2 / np.sqrt(2), rel=1e-4)


def test_more_models_say_more():
    random = np.random.default_rng(5)
    found = {f"m{n}": ratio(float(np.exp(-0.5 + 0.2 * random.standard_normal()))) for n in range(6)}
    pooled = pool(found)
    values = [finding.estimate.value for finding in found.values()]
    assert min(values) < pooled.estimate.value < max(values)
    assert pooled.standard_error < 0.2


def test_an_open_interval_is_not_left_out_of_the_mean():
    """It says that the effect may be large, and the mean of the others would not."""
    found = {"reference": ratio(0.5), "gemma": ratio(0.6)}
    assert pool(found) is not None
    assert pool({**found, "qwen": open_ratio(2.0)}) is None
    # A model without a finding says nothing of the effect.
    assert pool({**found, "qwen": TooFew("few", "more")}) == pool(found)


def test_a_model_and_the_same_with_planted_outliers_count_once():
    found = {"reference": ratio(0.5), "reference+outliers": ratio(0.1), "gemma": ratio(0.6)}
    pooled = pool(found)
    assert pooled == pool({"reference": ratio(0.5), "gemma": ratio(0.6)})
    assert pooled.note.startswith("Over reference, gemma. ")
    assert pool({name: found[name] for name in ("reference", "reference+outliers")}) is None
    assert pool({**found, "reference+outliers": open_ratio(1.0)}) == pooled
    # Where the model itself has no finding, its planted variant stands for it.
    stands = pool({**found, "reference": TooFew("few", "more")})
    assert stands.note.startswith("Over reference+outliers, gemma. ")
    again = pool({**found, "reference+outliers#2": ratio(0.2)})
    assert again == pooled


def test_other_findings_are_not_pooled():
    assert pool({"reference": ratio(0.5)}) is None
    assert pool({"reference": ratio(0.5), "gemma": ratio(0.5, claim={**BELOW, "threshold": 0.9})}) is None
    assert pool({"reference": exactly(0.003, claim=SHARE), "gemma": exactly(0.004, claim=SHARE)}) is None


def test_a_row_holds_verdicts_by_model_and_the_pooled_one():
    claim = Claim("fewer", "It halves.", "1.1", (), "The ratio lies below 1.", lambda evidence: ratio(0.5))
    answers = {"reference": ratio(0.3, 0.1), "gemma": ratio(0.31, 0.1), "qwen": ratio(0.29, 0.1)}
    (row,) = verdict_rows([claim], {"fewer": answers})
    assert {decision.verdict for decision in row.decisions.values()} == {"supported"}
    assert row.pooled.verdict == "supported"
    (alone,) = verdict_rows([claim], {"fewer": {"reference": ratio(0.3, 0.1)}})
    assert alone.pooled is None
