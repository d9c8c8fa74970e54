"""The promises on disparity, on simulated data sets of the kind that real measurements are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laaciq.errors import BrokenTexts
from laaciq.evaluation import Measurement, evaluate_measurements

CODES = ["ara", "ben", "deu", "ell", "eng", "fas", "fin", "fra", "heb", "hin", "hun", "ind", "ita", "jpn", "kor", "swa"]
LOSS, SPREAD, PASSAGES = 0.04, 0.08, 60


def simulate(random, losses, *, passages=PASSAGES, correlation=0.5, documents=None):
    """Losses per token differ by language in mean alone; passages vary, partly together (parallel text), with a heavy tail."""
    shared = random.standard_t(5, passages)
    measurements = []
    for code, loss in losses.items():
        tokens = random.integers(30, 120, passages)
        separate = random.standard_t(5, passages)
        noise = SPREAD * (np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * separate) / np.sqrt(5 / 3)
        original = tokens * random.normal(3.5, 0.3, passages)
        measurements.append(
            Measurement(
                language=code,
                served=True,
                documents=documents or [f"d{i}" for i in range(passages)],
                tokens=tokens.tolist(),
                bytes=(4 * tokens).tolist(),
                original_nll=original.tolist(),
                quantized_nll=(original + tokens * (loss + noise)).tolist(),
                kl=[0.1] * passages,
                agreed=(tokens // 2).tolist(),
            )
        )
    return measurements


def judge(measurements, *, parallel=True, draws=400):
    return evaluate_measurements(
        measurements,
        original="a",
        quantized="b",
        texts="simulated",
        parallel=parallel,
        served_bound=10,
        draws=draws,
    )


@pytest.mark.parametrize("parallel", [True, False])
def test_equal_languages_show_no_disparity(parallel):
    """At least 93 % of data sets; 95 % are meant, and 300 data sets leave ±1.3 % for chance."""
    random = np.random.default_rng(1)
    equal = dict.fromkeys(CODES, LOSS)
    correlation = 0.5 if parallel else 0.0
    result = [judge(simulate(random, equal, correlation=correlation), parallel=parallel).disparity for _ in range(300)]
    assert np.mean([not d.beyond_noise for d in result]) >= 0.93
    assert np.mean([d.heterogeneity_p > 0.05 for d in result]) >= 0.92


def test_a_planted_difference_of_five_standard_errors_is_found_and_named():
    random = np.random.default_rng(2)
    named = 0
    for _ in range(100):
        planted = CODES[random.integers(len(CODES))]
        losses = dict.fromkeys(CODES, LOSS) | {planted: LOSS + 5 * SPREAD / np.sqrt(PASSAGES)}
        disparity = judge(simulate(random, losses)).disparity
        named += disparity.beyond_noise and disparity.worst_language == planted
    assert named >= 95


def test_cross_fitting_removes_the_bias_of_the_extremes():
    """With equal languages the plug-in value is all bias; the cross-fitted one is centred on zero."""
    random = np.random.default_rng(3)
    result = [judge(simulate(random, dict.fromkeys(CODES, LOSS)), draws=50).disparity for _ in range(60)]
    standard_error = SPREAD / np.sqrt(PASSAGES)
    assert np.mean([d.plug_in.value for d in result]) > 2 * standard_error
    assert abs(np.mean([d.cross_fitted for d in result])) < 0.5 * standard_error


def test_intervals_cover_the_truth():
    """95 % are meant; 16 languages in 60 data sets, not independent, leave ±3 % for chance."""
    random = np.random.default_rng(4)
    covered = []
    for _ in range(60):
        for result in judge(simulate(random, dict.fromkeys(CODES, LOSS))).languages:
            covered.append(result.degradation.low <= np.expm1(LOSS) <= result.degradation.high)
    assert 0.91 <= np.mean(covered) <= 0.98


def test_the_interval_of_the_worst_language_allows_for_the_choice():
    """Of sixteen equal languages the one that came out worst is too high; the interval of a maximum reaches further down than its own."""
    evaluation = judge(simulate(np.random.default_rng(8), dict.fromkeys(CODES, LOSS)))
    largest, chosen = evaluation.disparity.worst, evaluation[evaluation.disparity.worst_language].degradation
    assert evaluation.worst == largest
    assert largest.value == pytest.approx(chosen.value)
    assert largest.low < chosen.low - 0.2 * (chosen.value - chosen.low)
    alone = judge(simulate(np.random.default_rng(8), {"eng": LOSS}))
    assert alone.worst == alone["eng"].degradation


def test_passages_of_a_document_are_resampled_together():
    """Six copies of every passage hold no more information than one; by document the interval must not shrink."""
    random = np.random.default_rng(5)
    (one,) = simulate(random, {"eng": LOSS}, passages=20)
    lists = [name for name in Measurement.model_fields if isinstance(getattr(one, name), list)]
    copied = one.model_copy(update={name: getattr(one, name) * 6 for name in lists})
    apart = copied.model_copy(update={"documents": [f"d{i}" for i in range(120)]})
    width = {}
    for name, measured in (("one", one), ("copied", copied), ("apart", apart)):
        estimate = judge([measured], draws=2000).languages[0].loss
        width[name] = estimate.high - estimate.low
    assert width["copied"] == pytest.approx(width["one"], rel=0.05)
    assert width["apart"] < 0.6 * width["one"]


def test_what_is_not_served_or_collapsed_is_kept_out():
    random = np.random.default_rng(6)
    measured = simulate(random, {"eng": 0.02, "fra": 0.03, "swa": 0.5, "amh": 3.0})
    measured[2] = measured[2].model_copy(update={"served": False})
    evaluation = judge(measured)
    assert evaluation.summary.not_served == ["swa"]
    assert evaluation.summary.collapsed == ["amh"]
    assert evaluation["amh"].degradation is None
    assert evaluation["amh"].loss.value == pytest.approx(3.0, abs=0.1)
    assert {evaluation.disparity.worst_language, evaluation.disparity.best_language} == {"eng", "fra"}
    assert "Amharic" in evaluation.verdict


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), codes=st.lists(st.sampled_from(CODES), min_size=1, max_size=6, unique=True))
def test_definitions(seed, codes):
    random = np.random.default_rng(seed)
    losses = {code: float(random.uniform(0, 0.3)) for code in codes}
    measured = simulate(random, losses, passages=12)
    evaluation = judge(measured, draws=50)
    for m, result in zip(measured, evaluation.languages, strict=True):
        change, original = sum(m.quantized_nll) - sum(m.original_nll), sum(m.original_nll)
        assert result.degradation.value == pytest.approx(np.exp(change / sum(m.tokens)) - 1)
        assert result.relative_bits.value == pytest.approx(change / original)
        assert result.relative_bits.value == pytest.approx(
            result.quantized.bits_per_byte / result.original.bits_per_byte - 1, abs=1e-9
        )
        assert result.bits_per_passage.value == pytest.approx(change / np.log(2) / 12)
    # Averaged over the loss, never over D.
    assert evaluation.summary.mean == pytest.approx(np.expm1(np.mean([r.loss.value for r in evaluation.languages])))
    if len(codes) > 1:
        values = [r.degradation.value for r in evaluation.languages]
        assert evaluation.disparity.plug_in.value == pytest.approx(max(values) - min(values))
    assert evaluation.model_validate_json(evaluation.model_dump_json()) == evaluation


def test_one_document_gives_no_interval():
    measured = simulate(np.random.default_rng(0), {"eng": LOSS}, passages=5, documents=["a"] * 5)
    with pytest.raises(BrokenTexts, match="only one document"):
        judge(measured)


def test_results_as_a_frame():
    frame = judge(simulate(np.random.default_rng(0), {"eng": 0.1, "fra": 0.2})).frame()
    assert list(frame["language"]) == ["eng", "fra"]
    assert "degradation.low" in frame.columns


def test_of_languages_that_lose_nothing_a_correction_leaves_hardly_any_hurt():
    """Alone, each of 16 languages is hurt in 2.5 % of data sets by chance, so that some language is in 33 % of 100 data sets of independent
    text. After the correction some is in 2.5 % at most, and chance leaves 4.7 %. A planted loss of six standard errors stays."""
    random = np.random.default_rng(5)
    alone = corrected = 0
    for _ in range(100):
        of_none = judge(simulate(random, dict.fromkeys(CODES, 0.0), correlation=0.0), parallel=False, draws=20)
        alone += any(r.hurt for r in of_none.languages)
        corrected += any(r.hurt_corrected for r in of_none.languages)
        assert all((r.p < 0.05) == (r.hurt or r.loss.high < 0) for r in of_none.languages)
    assert 0.2 < alone / 100 < 0.5
    assert corrected / 100 <= 0.025 + 0.047
    losses = dict.fromkeys(CODES, 0.0) | {"swa": 6 * SPREAD / np.sqrt(PASSAGES)}
    planted = judge(simulate(random, losses))
    assert planted["swa"].hurt_corrected
    assert planted.summary.hurt_corrected_share == sum(r.hurt_corrected for r in planted.languages) / len(CODES)
