"""Activations explain a loss only if all calibration text was profiled; otherwise the report says why it does not plot them."""

from __future__ import annotations

import pytest

from laaciq.corpus import read_split
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions
from laaciq.planning.screening import ScreeningThresholds, screen_profile
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.report.findings import Findings
from laaciq.report.html import html_report
from laaciq.report.profile_plots import CAPTIONS
from laaciq.report.wording import prediction_sentence, sampled_sentence
from tests.report.test_report import COMMAND, PLANS, Reader, evaluation
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Profile]:
    """By whether passages were left out."""
    model = load(find_model(save_tiny("llama", tmp_path_factory.mktemp("model"))))
    texts = read_split("builtin").calibration.select(["eng", "swa"]).at(range(3))
    options = MeasureOptions(served_bound=100.0)
    return {
        part.sampled: profile_model(model, part, options, outlier_kurtosis=50.0) for part in (texts, texts.spread(2))
    }


def test_the_profile_records_whether_passages_were_left_out(profiles: dict[bool, Profile]) -> None:
    assert {sampled: profile.sampled for sampled, profile in profiles.items()} == {True: True, False: False}
    assert Profile.model_validate_json(profiles[True].model_dump_json()).sampled


@pytest.mark.parametrize("sampled", [True, False])
def test_activations_are_plotted_if_all_text_was_profiled(profiles: dict[bool, Profile], sampled: bool) -> None:
    profile = profiles[sampled]
    page = Reader(html_report(Findings(evaluation("none"), COMMAND, plans=PLANS, profile=profile)))
    text = page.text
    # Heat maps are pictures in the page, and nothing is loaded.
    assert all(link.startswith(("#", "data:image/png;")) for link in page.links)
    assert (sampled_sentence(profile) in text) == sampled
    assert "2 passages per language" in sampled_sentence(profiles[True])
    assert (CAPTIONS["fractions"] in text) == (not sampled)
    # Weights need no text.
    assert CAPTIONS["kurtosis"] in text and CAPTIONS["top-shares"] in text


def test_a_few_passages_predict_nothing_where_it_depends_on_them(profiles: dict[bool, Profile]) -> None:
    """With outlier blocks the risk depends on how languages use them; without, on the weights alone."""
    outliers = ScreeningThresholds(outlier_kurtosis=1e-6, gaussian_kurtosis=1e-6)
    few, whole = (screen_profile(profiles[sampled], bits=4, thresholds=outliers) for sampled in (True, False))
    assert "Predicted: nothing" in prediction_sentence(few) and few.risk not in prediction_sentence(few)
    for screening in (whole, screen_profile(profiles[True], bits=4)):
        assert prediction_sentence(screening) == f"Predicted: {screening.risk}. {screening.prediction}"
