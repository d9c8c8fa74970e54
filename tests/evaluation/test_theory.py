"""What a run means for the theory, on losses and profiles of which the answer is known."""

from types import SimpleNamespace

import numpy as np
import pytest

from laaciq.corpus.families import family
from laaciq.evaluation.theory import TheoryFindings, theory_findings
from laaciq.report.theory_section import relation_cells, theory_lines, theory_sentences
from tests.evaluation.test_disparity import CODES, judge, simulate


def profile_of(values, *, max_kurtosis=120.0):
    """R̂ and κ_eff by language, as a profile holds them."""
    languages = [
        SimpleNamespace(language=code, passages=40, outlier_fraction=value, effective_kurtosis=30 + 100 * value)
        for code, value in values.items()
    ]
    return SimpleNamespace(
        languages=languages, max_kurtosis=max_kurtosis, outlier_blocks=[5] if max_kurtosis > 50 else []
    )


@pytest.fixture(scope="module")
def planted():
    """Losses that fall with R̂, over a hundred times their noise."""
    fractions = dict(zip(CODES, np.linspace(0.17, 0.21, len(CODES)), strict=True))
    losses = {code: 4.0 - 18 * value for code, value in fractions.items()}
    return judge(simulate(np.random.default_rng(0), losses), draws=20), fractions


def test_a_planted_relation_is_found(planted):
    evaluation, fractions = planted
    findings = theory_findings(evaluation, profile_of(fractions))
    relation = findings["outlier_fraction"]
    assert relation.r.value < -0.9 and relation.significant
    assert relation.permutation_p == pytest.approx(1 / 10_001)
    assert relation.r.low <= relation.r.value <= relation.r.high
    assert findings["effective_kurtosis"].r.value == pytest.approx(relation.r.value)
    assert findings.passages == 40 and "below −0.5" in findings.expectation
    assert "as the theory says" in theory_sentences(findings)[0]
    assert TheoryFindings.model_validate_json(findings.model_dump_json()) == findings


def test_without_outlier_blocks_it_says_so(planted):
    evaluation, _ = planted
    spread = dict(zip(CODES, np.random.default_rng(1).normal(size=len(CODES)), strict=True))
    findings = theory_findings(evaluation, profile_of(spread, max_kurtosis=3.0))
    assert findings["outlier_fraction"].r is None
    sentences = theory_sentences(findings)
    assert sentences[0].startswith("r(R̂, D) is undefined: no block is an outlier block (max κ 3.00)")
    assert "|r| below 0.3" in sentences[1]
    assert relation_cells(findings)[:2] == ["–", "–"]


def test_a_few_languages_decide_nothing():
    """Six languages find r = −0.5 with a power below 0.2."""
    codes = CODES[:6]
    random = np.random.default_rng(3)
    evaluation = judge(simulate(random, dict(zip(codes, random.uniform(0, 0.3, 6), strict=True))), draws=20)
    fractions = dict(zip(codes, [0.2, 0.19, 0.21, 0.18, 0.2, 0.2], strict=True))
    relation = theory_findings(evaluation, profile_of(fractions))["outlier_fraction"]
    assert relation.power < 0.2 and relation.detectable > 0.85 and not relation.powerful
    few = theory_findings(judge(simulate(random, dict.fromkeys(codes[:3], 0.1)), draws=20), profile_of(fractions))
    assert few["outlier_fraction"].undefined == "3 languages are too few, and 4 are needed"
    assert not relation.significant
    assert "undecided (power 0.1" in theory_sentences(theory_findings(evaluation, profile_of(fractions)))[0]


def test_groups_of_languages_are_compared():
    """Other scripts lose 0.3 nats more, which is many times the noise, and so do languages of low exposure."""
    latin = {"deu", "eng", "fin", "fra", "hun", "ind", "ita", "swa"}
    evaluation = judge(simulate(np.random.default_rng(4), {c: 0.1 + 0.3 * (c not in latin) for c in CODES}), draws=20)
    exposure = {code: 10 if code in ("ara", "ben", "ell") else 1000 for code in CODES if code != "swa"}
    findings = theory_findings(evaluation, profile_of(dict.fromkeys(CODES, 0.2)), exposure=exposure)
    low, scripts = findings.contrasts
    assert set(low.left_languages) == {"ara", "ben", "ell"} and len(low.right_languages) == len(CODES) - 4
    assert set(scripts.right_languages) == latin
    assert scripts.delta.value == 1 and scripts.g.low > 2 and scripts.p < 0.001
    assert scripts.left_mean == pytest.approx(np.expm1(0.4), abs=0.05)
    assert low.delta.value > 0 and low.detectable > scripts.detectable
    assert theory_findings(evaluation, profile_of({}), exposure=None).contrasts == []
    *_, line = theory_lines(findings)
    assert line.startswith("Difference of D in standard deviations (Hedges' g): low exposure against high exposure ")
    assert "between language families" in line


def test_relatives_count_as_fewer_languages():
    """Losses and R̂ that only families decide: many languages are worth few."""
    names = sorted({family(code) for code in CODES})
    fractions = {code: 0.1 + 0.01 * names.index(family(code)) for code in CODES}
    random = np.random.default_rng(6)
    by_family = dict(zip(names, random.uniform(0, 2, len(names)), strict=True))
    evaluation = judge(simulate(random, {code: by_family[family(code)] for code in CODES}), draws=20)
    findings = theory_findings(evaluation, profile_of(fractions))
    assert findings.families.share.low > 0.8
    assert findings["outlier_fraction"].independent < 0.7 * len(CODES)
    assert "that count as" in theory_sentences(findings)[0]
