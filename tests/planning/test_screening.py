"""The screening on the figures published with the theory, and on every branch of its rule."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from laaciq.errors import BadOption
from laaciq.planning.screening import Evidence, Screening, ScreeningThresholds, screen_evidence, screen_profile
from tests.published import PUBLISHED, published_evidence

DIFFERENT, ALIKE = {"eng": 0.205, "ara": 0.177}, {"eng": 0.205, "ara": 0.2}


def screen(max_kurtosis, fractions=None, bits=4, **thresholds):
    evidence = Evidence(block_kurtosis=[0.5, max_kurtosis], outlier_fractions=fractions, bits=bits)
    return screen_evidence(evidence, ScreeningThresholds.of(**thresholds))


def answers(screening):
    return [condition.answer for condition in screening.conditions]


def profile(kurtosis, fractions, outlier_kurtosis=50.0):
    """As much of a profile as a screening reads."""
    return SimpleNamespace(
        sampled=False,
        outlier_kurtosis=outlier_kurtosis,
        blocks=[SimpleNamespace(kurtosis=value) for value in kurtosis],
        languages=[SimpleNamespace(language=code, fractions=shares) for code, shares in fractions.items()],
    )


def test_published_bloom_is_at_high_risk():
    screening = screen_evidence(published_evidence("bloom_560m", bits=4))
    assert screening.risk == "HIGH"
    assert answers(screening) == [True, True, True]
    assert screening.outlier_blocks == [4, 5, 21, 22]
    assert "mixed precision (8 bits for blocks 4, 5, 21, 22)" in screening.strategy
    assert "predicted to be HIGH" in screening.prediction


def test_the_published_outlier_blocks_are_those_above_100():
    screening = screen_evidence(published_evidence("bloom_560m", bits=4), ScreeningThresholds(outlier_kurtosis=100))
    assert screening.outlier_blocks == [5, 21, 22] == PUBLISHED["bloom_560m"]["outlier_layers"]
    assert screening.risk == "HIGH"


def test_the_seeds_variance_would_reject_bloom_itself():
    """ "Var > 0.001", they say; BLOOM's is 9e-5. Its range of 0.033 is what they call a spread of 3 %. Both are shown."""
    varies = screen_evidence(published_evidence("bloom_560m", bits=4)).conditions[1]
    assert "range of R̂ = 0.0326" in varies.measured
    assert "variance 9e-05" in varies.measured


def test_published_xglm_is_at_low_risk():
    screening = screen_evidence(published_evidence("xglm_564m", bits=4))
    assert screening.risk == "LOW"
    assert answers(screening) == [False, None, True]
    assert screening.outlier_blocks == []
    assert "no special handling" in screening.strategy


@pytest.mark.parametrize(
    "max_kurtosis, fractions, bits, risk",
    [
        # The theory's cross-model table: BLOOM, XGLM, mT5, and XLM-R, which it calls LOW-MODERATE.
        (164, DIFFERENT, 4, "HIGH"),
        (1.9, None, 4, "LOW"),
        (45, None, 4, "MODERATE"),
        (10, None, 4, "MODERATE"),
        # Outlier blocks, but languages use them alike, or nobody measured how.
        (164, ALIKE, 4, "LOW"),
        (164, None, 4, "MODERATE"),
        (164, {"eng": 0.2}, 4, "MODERATE"),
        (164, {}, 4, "MODERATE"),
        # Enough bits, whatever else.
        (164, DIFFERENT, 8, "LOW"),
        (45, None, 16, "LOW"),
        # Uneven use of blocks does not matter where weights are near Gaussian.
        (1.9, DIFFERENT, 4, "LOW"),
        # The lines themselves: below 5 is near Gaussian, above 50 is an outlier.
        (5, None, 4, "MODERATE"),
        (50, DIFFERENT, 4, "MODERATE"),
    ],
)
def test_risk(max_kurtosis, fractions, bits, risk):
    screening = screen(max_kurtosis, fractions, bits)
    assert screening.risk == risk
    assert f"predicted to be {risk}" in screening.prediction


@pytest.mark.parametrize(
    "max_kurtosis, words", [(1.9, "no special handling"), (45, "with evaluation by language"), (51, "mixed precision")]
)
def test_strategy_by_the_largest_kurtosis(max_kurtosis, words):
    assert words in screen(max_kurtosis).strategy


def test_thresholds_are_configurable():
    assert screen(45, DIFFERENT).outlier_blocks == []
    assert screen(45, DIFFERENT, outlier_kurtosis=40).risk == "HIGH"
    assert screen(164, DIFFERENT, outlier_fraction_range=0.05).risk == "LOW"
    assert screen(164, DIFFERENT, bits=4, safe_bits=4).risk == "LOW"
    assert screen(4, gaussian_kurtosis=3).risk == "MODERATE"


def test_thresholds_that_contradict_each_other_are_refused():
    with pytest.raises(BadOption, match="gaussian_kurtosis 5 is above outlier_kurtosis 3"):
        ScreeningThresholds(outlier_kurtosis=3)
    with pytest.raises(BadOption, match="did you mean 'outlier_kurtosis'"):
        ScreeningThresholds.of(outlier_kurtoses=3)


def test_what_is_not_known_is_said_to_be_open():
    unknown = screen(164)
    done = [box.done for box in unknown.checklist]
    assert done == [True, True, False, False, True]
    assert unknown.conditions[1].measured == "R̂ not measured"
    assert "not known" in unknown.prediction
    assert unknown.checklist[3].answer.startswith("Unknown")
    one = screen(164, {"eng": 0.2})
    assert "one language only" in one.conditions[1].measured
    assert [box.done for box in one.checklist] == [True, True, True, False, True]


@given(
    kurtosis=st.lists(st.floats(-2, 1000), min_size=1, max_size=8),
    fractions=st.none() | st.dictionaries(st.sampled_from(["eng", "fra", "swa", "hin"]), st.floats(0, 1)),
    bits=st.sampled_from([2, 3, 4, 6, 8, 16]),
)
def test_every_screening_is_complete_and_survives_the_disk(kurtosis, fractions, bits):
    screening = screen_evidence(Evidence(block_kurtosis=kurtosis, outlier_fractions=fractions, bits=bits))
    assert [condition.name for condition in screening.conditions] == ["C1", "C2", "C3"]
    assert len(screening.checklist) == 5
    assert all(box.question and box.answer for box in screening.checklist)
    # All three conditions, and nothing less, make a high risk.
    assert (screening.risk == "HIGH") == all(answers(screening))
    assert bool(screening.outlier_blocks) == answers(screening)[0]
    assert Screening.model_validate_json(screening.model_dump_json()) == screening


@pytest.mark.parametrize("kurtosis", [[], [float("nan"), 3.0]])
def test_evidence_without_a_largest_kurtosis_is_refused(kurtosis):
    with pytest.raises(ValidationError):
        Evidence(block_kurtosis=kurtosis, outlier_fractions=None, bits=4)


def test_a_profile_is_screened_over_its_own_outlier_blocks():
    measured = profile([1, 76, 126], {"eng": [0.5, 0.2, 0.3], "ara": [0.6, 0.2, 0.2]})
    screening = screen_profile(measured, bits=4)
    assert screening.outlier_blocks == [1, 2]
    assert screening.risk == "HIGH"
    assert "range of R̂ = 0.1," in screening.conditions[1].measured
    # At another threshold R̂ is another sum: 0.2 in both languages.
    only_first = profile([1, 126, 76], {"eng": [0.5, 0.2, 0.3], "ara": [0.6, 0.2, 0.2]}, outlier_kurtosis=100)
    assert screen_profile(only_first, bits=4).outlier_blocks == [1]
    assert screen_profile(only_first, bits=4).risk == "LOW"
    assert screen_profile(only_first, bits=4, thresholds=ScreeningThresholds()).risk == "HIGH"


def test_a_profile_without_outlier_blocks_answers_c2():
    screening = screen_profile(profile([1, 45], {"eng": [0.5, 0.5], "ara": [0.9, 0.1]}), bits=4)
    assert answers(screening) == [False, False, True]
    assert screening.risk == "MODERATE"


def test_a_profile_with_a_low_bar_for_outliers_is_screened_too():
    screening = screen_profile(profile([1, 3], {"eng": [0.5, 0.5], "ara": [0.9, 0.1]}, outlier_kurtosis=2), bits=4)
    assert (screening.outlier_blocks, screening.risk) == ([1], "HIGH")


def test_a_profile_without_languages_leaves_c2_open():
    assert answers(screen_profile(profile([1, 76], {}), bits=4)) == [True, None, True]
