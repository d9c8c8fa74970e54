"""Claims on simulated evidence: nothing is called supported where nothing is there, and what is planted is found."""

from dataclasses import replace

import numpy as np
import pytest

from laaciq.lab.claims import CLAIMS
from laaciq.lab.evidence import Evidence
from laaciq.lab.experiment import answers
from laaciq.lab.findings import Finding, NotApplicable, Unanswered
from laaciq.lab.verdicts import judge
from tests.lab.simulated import CODES, block_set_losses, evidence, losses

EVERY = list(CLAIMS.values())


def findings(simulated):
    return answers(EVERY, simulated)


def noisy(answer):
    """What is in the weights is known exactly: it has no null."""
    return isinstance(answer, Finding) and answer.standard_error != 0


def test_claims_are_seldom_supported_where_nothing_is_there():
    """Sizes that are above their threshold by construction (bounds, disparities) may be refuted; only support is an error here."""
    supported, total = {}, 0
    for seed in range(4):
        kurtosis = (1.0, 60.0) if seed % 2 else (1.0, 4.0)
        found = {
            n: a for n, a in findings(evidence(np.random.default_rng(seed), kurtosis=kurtosis)).items() if noisy(a)
        }
        # Each claim by itself, without the correction for the number of claims, which would hide errors.
        for name, finding in found.items():
            total += 1
            if judge({name: finding})[name].verdict == "supported":
                supported[name] = supported.get(name, 0) + 1
    exact = ("keep-0.01-percent", "keep-1-percent", "critical-bits")
    equal = ("conditions-sufficient", "pruning-same-disparity", "adjustment-identifies")
    for true_by_construction in (*exact, *equal):
        supported.pop(true_by_construction, None)
    assert sum(supported.values()) <= 0.05 * total, supported


def test_every_claim_has_an_answer_on_some_model():
    simulated = [evidence(np.random.default_rng(0), kurtosis=bounds) for bounds in ((1.0, 60.0), (1.0, 4.0))]
    decoder = simulated[0].measured
    profile = replace(decoder["profile"], kind="encoder-decoder")
    simulated.append(Evidence("encoder-decoder", {**decoder, "profile": profile}))
    answered = {name for s in simulated for name, answer in findings(s).items() if isinstance(answer, Finding)}
    assert answered == set(CLAIMS)


@pytest.mark.parametrize("count", [2, 6])
def test_with_few_languages_nothing_is_decided(count):
    simulated = evidence(np.random.default_rng(1), CODES[:count])
    for name, answer in findings(simulated).items():
        assert not noisy(answer), name
    verdicts = {name: decision.verdict for name, decision in judge(findings(simulated)).items()}
    assert verdicts["effective-kurtosis"] == "undecided"
    assert verdicts["no-super-weights"] == "supported"


def test_half_of_three_documents_has_no_spread():
    simulated = evidence(np.random.default_rng(1)).measured
    for passages, is_answered in ((3, False), (4, True)):
        sets = block_set_losses(np.random.default_rng(1), CODES, passages=passages)
        answer = answers([CLAIMS["gateway-necessary"]], Evidence("m", {**simulated, "block-sets": sets}))
        assert isinstance(answer["gateway-necessary"], Finding) == is_answered


def test_claims_about_outliers_do_not_apply_without_them():
    simulated = evidence(np.random.default_rng(2), kurtosis=(0.5, 4.0), exposure=False)
    found = findings(simulated)
    for name in ("outlier-fraction", "outliers-correlate", "exposure-outlier-fraction", "bound-empirical"):
        assert isinstance(found[name], NotApplicable) and "outlier" in found[name].reason
    assert "training" in found["exposure-loss"].reason
    assert "encoder-decoder" in found["decoder-attention"].needed


def test_a_measurement_that_failed_gives_its_reason_to_every_claim_that_needs_it():
    simulated = evidence(np.random.default_rng(3))
    broken = Evidence("m", {**simulated.measured, "rtn-4": NotApplicable("no text", "give texts")})
    found = findings(broken)
    assert all(isinstance(found[c.name], Unanswered) for c in EVERY if "rtn-4" in c.needs)
    assert found["effective-kurtosis"].reason == "no text"


def planted(random, **changes):
    """Evidence whose profile or candidates are replaced."""
    simulated = evidence(random, sets=False)
    profile = replace(simulated.profile, **changes.pop("profile", {}))
    return Evidence("planted", {**simulated.measured, "profile": profile, **changes})


def test_the_published_effect_is_found():
    """D falls with R̂ and κ_eff as published (r = −0.834, −0.838), and a half of the disparity goes with 8 bits on outlier blocks."""
    hits = dict.fromkeys(
        ("outlier-fraction", "outliers-correlate", "effective-kurtosis", "outlier-blocks-at-8-bits"), 0
    )
    for seed in range(10):
        random = np.random.default_rng(seed)
        z = random.standard_normal(len(CODES))
        noise = random.standard_normal((2, len(CODES)))
        x = -0.834 * z + np.sqrt(1 - 0.834**2) * noise[0]
        y = -0.838 * z + np.sqrt(1 - 0.838**2) * noise[1]
        common = random.standard_normal((len(CODES), 8))
        spread = 0.03 * z
        simulated = planted(
            random,
            profile={"outlier_fraction": 0.18 + 0.01 * x, "effective_kurtosis": 40 + y},
            **{
                "rtn-4": losses(np.log1p(0.15 + spread), random, noise=0.02, shared=common),
                "outliers-8": losses(np.log1p(0.15 + 0.5 * spread), random, noise=0.02, shared=common),
            },
        )
        chosen = [CLAIMS[name] for name in hits]
        for name, decision in judge(answers(chosen, simulated)).items():
            hits[name] += decision.verdict == "supported"
    assert min(hits.values()) >= 8, hits


def _in_the_graph(random, *, chain):
    """Exposure → T → A → R, each with noise of its own; D follows from R or, unless the `chain` is there, from T and exposure alone."""
    exposure, t, a, r, d = random.standard_normal((5, len(CODES)))
    t = 0.7 * t - 0.7 * exposure
    a = 0.5 * a - 0.8 * t + 0.3 * exposure
    r = 0.5 * r + 0.9 * a + 0.3 * exposure
    d = 0.4 * d - 0.9 * r if chain else 0.4 * d + 0.9 * t - 0.5 * exposure
    profile = {"exposure": np.exp(15 + exposure), "fertility": np.exp(t / 10), "alignment": a, "redundancy": 3 + r / 10}
    return planted(random, profile=profile, **{"rtn-4": losses(np.log1p(0.3 + 0.03 * d), random, noise=0.001)})


def test_back_door_adjustment_finds_a_cause_and_no_mere_companion():
    adjusted = [CLAIMS["alignment-adjusted"], CLAIMS["redundancy-adjusted"]]
    companion = CLAIMS["alignment-monotone"]
    hits, runs = {"causes": 0, "companions": 0, "false": 0}, 20
    for seed in range(runs):
        random = np.random.default_rng(seed)
        found, alone = answers(adjusted, _in_the_graph(random, chain=True)), _in_the_graph(random, chain=False)
        hits["causes"] += sum(judge({n: f})[n].verdict == "supported" for n, f in found.items())
        found = answers([*adjusted, companion], alone)
        verdicts = {n: judge({n: f})[n].verdict for n, f in found.items()}
        hits["companions"] += verdicts.pop(companion.name) == "supported"
        hits["false"] += list(verdicts.values()).count("supported")
    # Without adjustment, alignment seems to be a cause.
    assert hits["companions"] >= 0.8 * runs
    assert hits["causes"] >= 0.8 * 2 * runs and hits["false"] <= 0.05 * 2 * runs, hits
