from dataclasses import replace

import numpy as np
import pytest

import laaciq
from laaciq.corpus import Split
from laaciq.errors import BadOption, BrokenTexts, UnknownLanguage
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions, MixtureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.profiling.profile import profile_model
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.model import quantize_layers, quantize_model
from laaciq.report.mixture_report import mixture_html
from laaciq.stats.estimate import Estimate
from laaciq.studies import recalibration
from laaciq.studies.mixes import MIXES
from laaciq.studies.mixture import mixture_study
from laaciq.studies.recommendation import choose, degradation
from laaciq.trials.losses import Losses
from laaciq.trials.measurement import measure
from laaciq.trials.quantized_copy import copy_of, put_layers
from laaciq.trials.session import Session
from tests.tiny import save_tiny

FEW = ["eng", "swa", "hin"]
OPTIONS = MeasureOptions(served_bound=100)
SETTINGS = {"bits": 3, "group_size": 16, "calibration_passages": (2,), "rounds": 1}
# More passages than there are: only all of them are tried.
LEAST = SETTINGS | {"calibration_passages": (99,), "rounds": 0}


def shortened(texts, count, begin=0):
    short = {
        code: replace(p.at(range(begin, begin + count)), texts=tuple(t[:60] for t in p.texts[begin : begin + count]))
        for code, p in texts.by_language.items()
    }
    return replace(texts, by_language=short)


@pytest.fixture(scope="module")
def split():
    whole = laaciq.read_split().select(FEW)
    return Split(shortened(whole.calibration, 4), shortened(whole.validation, 4), shortened(whole.test, 4))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(
        find_model(save_tiny("llama", tmp_path_factory.mktemp("models") / "llama", num_hidden_layers=1)), device="cpu"
    )


def studied(model, split, measuring=OPTIONS, out=None, **options):
    return mixture_study(Session.of(model, split, measuring, out=out), MixtureOptions(**options))


@pytest.fixture(scope="module")
def study(model, split):
    return studied(model, split, **SETTINGS)


@pytest.fixture
def quantized(monkeypatch):
    """The plans that were quantized."""
    made = []

    def counted(model, plan, calibration, **options):
        made.append(plan)
        return quantize_model(model, plan, calibration, **options)

    monkeypatch.setattr(recalibration, "quantize_model", counted)
    return made


# What is tried


def test_every_mix_is_tried_with_every_number_and_with_all(study):
    assert [(entry.mix, entry.passages) for entry in study.settings] == [(mix, n) for mix in MIXES for n in (2, 4)]
    assert study.languages == FEW
    for entry in study.settings:
        assert sum(entry.weights.values()) == pytest.approx(1)
        assert entry.worst.value == max(loss.value for loss in entry.loss.values())
        assert entry.worst.value == entry.loss[entry.worst_language].value
        assert entry.mean.value == pytest.approx(np.mean([loss.value for loss in entry.loss.values()]))


def test_mixes_weigh_languages_as_they_say(study):
    assert study.of("only", 4).weights == {"eng": 1.0}
    assert set(study.of("equal", 4).weights.values()) == {1 / 3}
    tokens = study.of("proportional", 4).tokens
    # Byte-level pieces that saw little Hindi: it takes most tokens.
    assert max(study.of("proportional", 4).weights, key=study.of("proportional", 4).weights.get) == "hin"
    assert study.of("only", 4).tokens == pytest.approx(study.of("proportional", 4).weights["eng"] * tokens)
    assert study.of("minimax", 2).weights == study.of("minimax", 4).weights
    assert study.of("minimax", 4).weights in study.rounds
    assert study.rounds[0] == study.of("equal", 4).weights


def test_english_only_reads_no_other_text(model, split, study):
    """All other languages' calibration text replaced: what English alone gives stays the same, what equal weights give does not."""
    other = {
        code: p if code == "eng" else replace(p, texts=(*p.texts[::-1][:3], "x y z w"))
        for code, p in split.calibration.by_language.items()
    }
    changed = replace(split, calibration=replace(split.calibration, by_language=other))
    result = studied(model, changed, **LEAST)
    assert result.of("only", 4).loss == study.of("only", 4).loss
    assert result.of("equal", 4).loss != study.of("equal", 4).loss


def test_equal_weights_with_all_text_are_the_method_gptq(model, split, study):
    profile = profile_model(model, split.calibration, OPTIONS, outlier_kurtosis=50)
    options = WeightOptions(method="gptq", bits=3, group_size=16, symmetric=False)
    plan, quantized_copy = make_plans(model.anatomy, options, profile).first, copy_of(model)
    put_layers(model, quantized_copy, quantize_layers(model, plan, Calibration(profile, split.calibration, OPTIONS)))
    for code in FEW:
        measured = measure(model, quantized_copy, split.test[code], OPTIONS)
        expected = (sum(measured.quantized_nll) - sum(measured.original_nll)) / sum(measured.tokens)
        # The two batch differently, in float32: seven digits of an NLL of about six nats.
        assert study.of("equal", 4).loss[code].value == pytest.approx(expected, abs=1e-5)
        checked = measure(model, quantized_copy, split.validation[code], OPTIONS)
        kl = sum(checked.kl) / sum(checked.tokens)
        assert study.of("equal", 4).validation[code] == pytest.approx(kl, abs=1e-5)


def test_the_worst_two_of_equal_weights_are_left_out(study):
    validation = study.of("equal", 4).validation
    assert [entry.language for entry in study.left_out] == sorted(FEW, key=lambda code: -validation[code])[:2]
    for entry in study.left_out:
        assert entry.with_text == study.of("equal", 4).loss[entry.language]
        assert entry.rise.value == pytest.approx(entry.without_text.value - entry.with_text.value)


def test_a_language_left_out_has_no_weight(model, split, quantized):
    result = studied(model, split, **(LEAST | {"leave_out": ("Swahili",)}))
    assert [entry.language for entry in result.left_out] == ["swa"]
    assert {"eng": 0.5, "hin": 0.5} in [plan.weights for plan in quantized]


# Honesty


def test_test_text_chooses_nothing(model, split, study):
    """Other test text, in which English comes out otherwise too: nothing that is chosen changes."""
    changed = replace(split, test=shortened(laaciq.read_split().select(FEW).test, 4, begin=20))
    result = studied(model, changed, **SETTINGS)
    assert result.of("equal", 4).loss != study.of("equal", 4).loss
    assert result.rounds == study.rounds
    assert [entry.weights for entry in result.settings] == [entry.weights for entry in study.settings]
    assert [entry.language for entry in result.left_out] == [entry.language for entry in study.left_out]
    assert result.not_served == study.not_served
    for name in ("mix", "passages", "tokens"):
        assert getattr(result.recommendation, name) == getattr(study.recommendation, name)


def test_languages_that_are_not_served_count_for_nothing(model, split):
    heard = {code: measure(model, model, split.validation[code], OPTIONS).original_bits_per_byte for code in FEW}
    worst = max(heard, key=heard.get)
    bound = (sorted(heard.values())[-1] + sorted(heard.values())[-2]) / 2
    others = [code for code in FEW if code != worst]
    result = studied(model, split, MeasureOptions(served_bound=bound), single_language=others[0], **LEAST)
    assert result.not_served == [worst]
    assert result.languages == others
    assert all(set(entry.weights) <= set(others) and set(entry.loss) == set(others) for entry in result.settings)
    with pytest.raises(BadOption, match=f"does not serve {worst}"):
        studied(model, split, MeasureOptions(served_bound=bound), single_language=worst, **SETTINGS)


# Keeping


def test_a_second_run_quantizes_nothing_and_says_the_same(model, split, study, tmp_path, quantized):
    def again(**changes):
        quantized.clear()
        return studied(model, split, out=tmp_path / "run", **(SETTINGS | changes))

    first = again()
    plans = [plan.model_dump_json() for plan in quantized]
    assert len(plans) == len(set(plans))
    assert len(list((tmp_path / "run/trials/mixtures").iterdir())) == len(plans)
    assert first == study
    assert again() == first
    assert not quantized
    again(calibration_passages=(3,))
    assert {plan.passages for plan in quantized} == {3}
    again(single_language="swa")
    assert [(plan.weights, plan.passages) for plan in quantized] == [({"swa": 1.0}, n) for n in (2, 4)]


def test_a_killed_run_goes_on_where_it_was(model, split, study, tmp_path, monkeypatch, quantized):
    counted = recalibration.quantize_model

    def killed(*arguments, **options):
        if len(quantized) == 3:
            raise KeyboardInterrupt
        return counted(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(recalibration, "quantize_model", killed)
        studied(model, split, out=tmp_path / "run", **SETTINGS)
    assert studied(model, split, out=tmp_path / "run", **SETTINGS) == study
    plans = [plan.model_dump_json() for plan in quantized]
    assert len(plans) == len(set(plans))


def test_the_model_stays_what_it_was(model, split):
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    studied(model, split, **LEAST)
    assert all(tensor.equal(before[name]) for name, tensor in model.module.state_dict().items())


# What cannot be done


def test_a_language_without_text_is_refused(model, split):
    with pytest.raises(UnknownLanguage, match="no text in English"):
        studied(model, split.select(["swa", "hin"]), **SETTINGS)
    with pytest.raises(UnknownLanguage, match="no text in Finnish"):
        studied(model, split, leave_out=("fin",), **SETTINGS)
    with pytest.raises(UnknownLanguage, match="unknown language 'qqqq'"):
        studied(model, split, single_language="qqqq", **SETTINGS)


def test_what_leaves_nothing_to_compare_is_refused(model, split):
    with pytest.raises(BadOption, match="serves fewer than two languages"):
        studied(model, split.select(["eng"]), **SETTINGS)
    with pytest.raises(BrokenTexts, match="fewer than two documents"):
        studied(model, replace(split, test=split.test.at([0])), **SETTINGS)


# The recommendation, from losses that are known


def known_losses(by_code, *, noise=0.0, documents=40):
    """Losses a token about the given means, the same noise for whatever has the same means' order."""
    shift = noise * np.random.default_rng(0).normal(size=documents)
    loss = {code: mean + shift - shift.mean() for code, mean in by_code.items()}
    tokens, names = ({code: value for code in by_code} for value in ([1] * documents, list(map(str, range(documents)))))
    return Losses.of(loss, tokens, names, parallel=True, seed=0)


def test_the_worst_language_and_differences_are_what_was_put_in():
    left, right = known_losses({"eng": 0.1, "swa": 0.3}, noise=0.1), known_losses({"eng": 0.2, "swa": 0.05}, noise=0.1)
    code, worst = left.worst()
    assert code == "swa"
    assert worst.value == pytest.approx(0.3)
    assert worst.low < 0.3 < worst.high
    # The noise is the same passage by passage: paired, nothing of it is left.
    assert (result := left.worst_difference(right)).value == pytest.approx(0.1)
    assert result.high - result.low < 1e-9
    assert left.difference(right, "swa").value == pytest.approx(0.25)
    assert right.by_language()["eng"].value == pytest.approx(0.2)


def test_the_simplest_of_equally_good_mixes_and_the_fewest_passages_are_chosen():
    alike, worse = known_losses({"eng": 0.1, "swa": 0.2}, noise=0.1), known_losses({"eng": 0.1, "swa": 0.3}, noise=0.1)
    validation = {(mix, n): alike if n > 1 else worse for mix in MIXES for n in (1, 5, 30)}
    assert choose(validation).key == ("equal", 5)
    assert choose(validation | {("equal", 30): worse}).key == ("proportional", 5)
    # As good once, but not from there on.
    assert choose(validation | {("equal", 1): alike, ("equal", 5): worse}).key == ("equal", 30)


def test_a_collapsed_language_has_no_ratio():
    assert degradation(Estimate(value=np.log(10.1), low=0, high=9)) == "collapsed"
    assert degradation(Estimate(value=np.log(1.25), low=0, high=9)) == "25.0 %"


def test_the_page_holds_the_sentence_and_every_setting(study):
    page = mixture_html(study)
    assert study.recommendation.sentence in page
    assert page.count("<tr>") == 1 + len(study.settings)
    assert "English only" in page
