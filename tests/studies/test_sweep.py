from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laaciq
from laaciq.corpus import Split
from laaciq.models import find_model, load
from laaciq.options import USUAL_BITS, MeasureOptions, SweepOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.quantization.checkpoint import apply_checkpoint, write_checkpoint
from laaciq.stats.estimate import Estimate
from laaciq.studies.sweep import sweep, tolerated_bits
from laaciq.trials import tasks
from laaciq.trials.measurement import measure, measure_each
from laaciq.trials.quantized_copy import copy_of
from laaciq.trials.session import Session
from tests.tiny import save_tiny

FEW = ["eng", "swa", "hin"]
OPTIONS = MeasureOptions(served_bound=100)


@pytest.fixture(scope="module")
def texts():
    whole = laaciq.read_split().test.select(FEW)
    short = {
        code: replace(p.at(range(10)), texts=tuple(t[:60] for t in p.texts[:10]))
        for code, p in whole.by_language.items()
    }
    return replace(whole, by_language=short)


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model(request, tmp_path_factory):
    folder = save_tiny(request.param, tmp_path_factory.mktemp("models") / request.param)
    return load(find_model(folder), device="cpu")


def swept(model, texts, measuring=OPTIONS, out=None, **options):
    session = Session.of(model, Split(texts, texts, texts), measuring, out=out)
    return sweep(session, SweepOptions.of(group_size=16, **options))


@pytest.fixture
def measured(monkeypatch):
    """The languages that were measured, in order."""
    made = []

    def counted(original, quantized, passages, *rest, **options):
        made.append(passages.language.code)
        return measure_each(original, quantized, passages, *rest, **options)

    monkeypatch.setattr(tasks, "measure_each", counted)
    return made


def test_more_bits_less_loss(model, texts, measured):
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    result = swept(model, texts)
    assert all(tensor.equal(before[name]) for name, tensor in model.module.state_dict().items())
    assert len(measured) == len(USUAL_BITS) * len(FEW)
    assert result.bits == USUAL_BITS
    assert result.languages == FEW
    # A random model may gain from quantization by chance; what is sure is how far it moves.
    moved = [np.mean([abs(result.degradation[code][bits].value) for code in FEW]) for bits in USUAL_BITS]
    assert moved == sorted(moved, reverse=True)
    for code in FEW:
        assert result.tolerated_bits[code] == tolerated_bits(result.degradation[code], result.tolerance)


def test_a_sweep_says_what_a_checkpoint_of_those_bits_loses(model, texts, tmp_path):
    result = swept(model, texts, bits=(3,), symmetric=False)
    plan = make_plans(model.anatomy, WeightOptions(bits=3, group_size=16, symmetric=False)).first
    write_checkpoint(model, plan, tmp_path / "checkpoint")
    quantized = copy_of(model)
    apply_checkpoint(quantized, tmp_path / "checkpoint")
    for code in FEW:
        single = measure(model, quantized, texts[code], OPTIONS)
        loss = (sum(single.quantized_nll) - sum(single.original_nll)) / sum(single.tokens)
        assert result.degradation[code][3].value == pytest.approx(np.expm1(loss), rel=1e-12)


def test_a_second_sweep_computes_nothing_new_bits_are_added(model, texts, measured, tmp_path):
    def again(bits):
        measured.clear()
        return swept(model, texts, out=tmp_path / "run", bits=bits)

    first = again((2, 4))
    assert measured == FEW * 2
    assert again((4, 2)) == first
    assert not measured
    wider = again((2, 3, 4))
    assert measured == FEW
    assert {code: wider.degradation[code][2] for code in FEW} == {code: first.degradation[code][2] for code in FEW}


@pytest.mark.parametrize("tolerance", [0.0, 1000.0])
def test_extremes_of_tolerance(model, texts, tolerance):
    result = swept(model, texts, bits=(2, 8), tolerance=tolerance)
    for code in FEW:
        ends = {bits: entry.high <= tolerance if entry else False for bits, entry in result.degradation[code].items()}
        expected = None if not ends[8] else 2 if ends[2] else 8
        assert result.tolerated_bits[code] == expected


def test_critical_bits_ends_the_run_of_disparities_beyond_noise(model, texts):
    result = swept(model, texts)
    judged = {bits: entry.beyond_noise for bits, entry in result.disparity.items() if entry is not None}
    below = [bits for bits in judged if all(judged[smaller] for smaller in judged if smaller <= bits)]
    assert result.critical_bits == max(below, default=None)


def test_a_language_that_is_not_served_is_left_out(model, texts):
    bits = {code: measure(model, model, texts[code], OPTIONS).original_bits_per_byte for code in FEW}
    # Hindi has three bytes per letter, and by far the fewest bits per byte: half-way to the next is clear of the probe's noise.
    bound = sum(sorted(bits.values())[:2]) / 2
    result = swept(model, texts, MeasureOptions(served_bound=bound), bits=(4,))
    assert (result.languages, result.not_served) == (["hin"], ["eng", "swa"])
    assert list(result.degradation) == list(result.tolerated_bits) == ["hin"]
    assert result.disparity == {4: None}
    assert result.critical_bits is None


@given(
    st.dictionaries(st.sampled_from(USUAL_BITS), st.none() | st.floats(0, 0.1), min_size=1),
    st.sampled_from([0.0, 0.02, 0.05, 0.2]),
)
def test_tolerated_bits_by_definition(ends, tolerance):
    degradation = {
        bits: None if high is None else Estimate(value=high / 2, low=0, high=high) for bits, high in ends.items()
    }
    enough = [
        bits
        for bits in ends
        if all(ends[other] is not None and ends[other] <= tolerance for other in ends if other >= bits)
    ]
    assert tolerated_bits(degradation, tolerance) == min(enough, default=None)
