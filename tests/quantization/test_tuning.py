import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

import laaciq
from laaciq.engine.fast_products import training_type
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.profiling.activations import prepare_whole
from laaciq.profiling.profile import profile_model
from laaciq.quantization import Calibration, apply_checkpoint, write_checkpoint
from laaciq.quantization.model import quantize_layers, quantize_model
from laaciq.quantization.stored_layers import StoredLayers
from laaciq.quantization.student import Student
from laaciq.quantization.tuning import (
    MOST_STEPS,
    SCALE_RATE,
    STEP_TOKENS,
    VECTOR_RATE,
    _descend,
    _rates,
    steps_per_epoch,
    tune,
    tuned_bytes,
    weights_by_token,
)
from laaciq.scoring.last_hidden import LastHidden
from laaciq.scoring.likelihood import score
from laaciq.scoring.operations import ModelShape
from laaciq.scoring.sequences import ScoredSequence
from laaciq.trials.measurement import measure_pooled
from laaciq.trials.quantized_copy import copy_of, put_layers
from tests.tiny import ARCHITECTURES, save_tiny

FEW = ["eng", "hin"]
KINDS = [
    {},
    {"method": "gptq", "bits": 3, "symmetric": False},
    {"keep": 5.0, "rank": 2, "method": "mse"},
    {"embedding_bits": 4, "protect": ("0",)},
    {"group_size": "tensor", "bits": 6},
    # A last group of a row that is shorter than the others.
    {"group_size": 24, "method": "gptq"},
]


def calibrate(model, passages=8):
    split = laaciq.read_split("builtin").select(FEW)
    texts, options = split.calibration.spread(passages), MeasureOptions()
    return Calibration(profile_model(model, texts, options, outlier_kurtosis=50), texts, options, split.validation)


def tiny(architecture, folder, **options):
    model = load(find_model(save_tiny(architecture, folder)), device="cpu")
    calibration = calibrate(model)
    weight_options = WeightOptions(**{"group_size": 16, "bits": 3, "tune": 3, **options})
    return model, make_plans(model.anatomy, weight_options, calibration.profile).first, calibration


def losses(model, plan, calibration):
    """KL by language on a part of the calibration text itself: a masked model is asked for every token of it."""
    return divergence(model, plan, calibration, calibration.texts.spread(3))


def divergence(model, plan, calibration, texts):
    """KL per token, by language, of the plan quantized in memory."""
    layers, others = quantize_model(model, plan, calibration)
    quantized = copy_of(model)
    put_layers(model, quantized, layers, others=others)
    measured = measure_pooled(model, quantized, list(texts.by_language.values()), calibration.options)
    return np.array([sum(m.kl) / sum(m.tokens) for m in measured])


def test_codes_that_do_not_fit_on_a_gpu_are_announced(tmp_path, monkeypatch):
    """They must fit beside what tuning is estimated to need."""
    said, beside = [], []
    monkeypatch.setattr(StoredLayers, "nearer", lambda self, **room: beside.append(room["beside"]) or self)
    monkeypatch.setattr(StoredLayers, "near", property(lambda self: not said and len(beside) == 1))
    model, plan, calibration = tiny("llama", tmp_path, tune=1)
    layers = list(quantize_layers(model, plan, calibration))
    for _ in range(2):
        progress = Progress()
        monkeypatch.setattr(progress, "say", said.append)
        tune(model, plan, layers, calibration, epochs=1, recompute=True, progress=progress)
    assert said == ["Packed codes do not fit on the GPU beside the work: tuning copies them there for every batch."]
    assert beside == [tuned_bytes(ModelShape.of("causal", model.anatomy))] * 2


def untuned(plan):
    return plan.model_copy(update={"tuned": 0})


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mt5", "bert"])
def test_a_tuned_model_is_nearer_to_the_original(architecture, tmp_path):
    model, plan, calibration = tiny(architecture, tmp_path)
    assert plan.tuned == 3
    before, after = losses(model, untuned(plan), calibration), losses(model, plan, calibration)
    assert (after < before).all()


def test_rates_halve_with_every_bit(tmp_path):
    model, plan, calibration = tiny("llama", tmp_path, bits=4, embedding_bits=6)
    student = Student(model, StoredLayers.of(quantize_layers(model, plan, calibration), model.device), recompute=False)
    *scales, vectors = _rates(student)
    assert sum(len(group["params"]) for group in scales) == len(student.layers)
    assert {group["lr"] for group in scales} == {SCALE_RATE / 2, SCALE_RATE / 8}
    assert VECTOR_RATE / 8 < vectors["lr"] < VECTOR_RATE / 2


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "bloom", "mt5"])
def test_products_in_bfloat16_do_not_move_the_result(architecture, recompute, tmp_path, monkeypatch):
    """Only gradients are computed in bfloat16; what an epoch loses is measured in float32."""
    model, plan, calibration = tiny(architecture, tmp_path)
    layers = list(quantize_layers(model, plan, calibration))
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        monkeypatch.setattr("laaciq.quantization.tuning.training_type", lambda *_, dtype=dtype: dtype)
        results.append(tune(model, plan, layers, calibration, epochs=3, recompute=recompute).divergences)
    exact, fast = np.array(results)
    assert fast[0] == exact[0]
    assert fast[1:] != pytest.approx(exact[1:], rel=1e-6)
    # Within 2 % of what is gained.
    assert np.abs(fast - exact).max() < 0.02 * (exact[0] - exact.min())


def test_narrow_models_multiply_in_float32_on_a_cpu():
    cpu = torch.device("cpu")
    assert training_type(cpu, torch.float32, 256) == torch.float32
    assert training_type(cpu, torch.float32, 4096) in (torch.float32, torch.bfloat16)
    assert training_type(cpu, torch.bfloat16, 256) == torch.bfloat16


@pytest.mark.parametrize(("device", "most"), [("cpu", 10 * MOST_STEPS), ("cuda", MOST_STEPS)])
def test_a_step_reads_more_on_an_accelerator_where_there_is_more_text(device, most):
    few, some, many = (steps_per_epoch(n * STEP_TOKENS, torch.device(device)) for n in (0, 20, 10 * MOST_STEPS))
    assert (few, some, many) == (1, 20, most)


def test_the_original_runs_once(tmp_path, monkeypatch):
    """For what it says of calibration and validation text; its blocks are not needed after that."""
    model, plan, calibration = tiny("llama", tmp_path)
    layers = list(quantize_layers(model, plan, calibration))

    class Once(LastHidden):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            for block in model.blocks:
                block.forward = None

    monkeypatch.setattr("laaciq.quantization.tuning.LastHidden", Once)
    assert len(tune(model, plan, layers, calibration, epochs=2).divergences) == 3


def test_a_scale_of_zero_stays_zero(tmp_path):
    """Others stay within the range of their type."""
    model, plan, calibration = tiny("llama", tmp_path)
    layers = StoredLayers.of(quantize_layers(model, plan, calibration), model.device)
    name = next(iter(layers.plans))
    layers.parts[name]["scales"][0, 0] = 0
    student = Student(model, layers, recompute=False)
    with torch.no_grad():
        student.scale_steps[0].fill_(100.0)
    moved = student.scales(name)
    assert moved.dtype == layers.parts[name]["scales"].dtype
    assert moved[0, 0] == 0
    assert (moved.flatten()[1:] == torch.finfo(moved.dtype).max).all()


def test_where_nothing_is_quantized_nothing_is_tuned(tmp_path):
    model, plan, calibration = tiny("llama", tmp_path)
    whole = plan.model_copy(update={"tensors": [t.model_copy(update={"bits": 16}) for t in plan.tensors]})
    assert quantize_model(model, whole, calibration) == (StoredLayers({}, {}, model.device), {})


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "bloom", "mt5"])
def test_an_original_in_16_bits_is_tuned_towards_in_32(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)), device="cpu", dtype=torch.float16)
    calibration = calibrate(model, passages=4)
    plan = make_plans(model.anatomy, WeightOptions(group_size=16, bits=3, tune=2), calibration.profile).first
    layers = list(quantize_layers(model, plan, calibration))
    student = Student(model, StoredLayers.of(layers, model.device), recompute=False)
    ids = torch.arange(5, 25)[None]
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if model.kind == "encoder-decoder" else {})
    assert student(**inputs).logits.dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in [*student.scale_steps, *student.vector_steps])
    tuned = tune(model, plan, layers, calibration, epochs=2)
    assert min(tuned.divergences) < tuned.divergences[0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_codes_stay_and_what_is_tuned_is_stored_as_before(architecture, tmp_path):
    model, plan, calibration = tiny(architecture, tmp_path, tune=1)
    original = {name: p.clone() for name, p in model.module.named_parameters()}
    before = list(quantize_layers(model, plan, calibration))
    tuned = tune(model, plan, before, calibration, epochs=1)
    assert min(tuned.divergences) < tuned.divergences[0]
    for (tensor, old), (same, new) in zip(before, tuned.layers, strict=True):
        assert same == tensor
        assert torch.equal(new.codes, old.codes)
        assert (new.grid.zeros is None) == (old.grid.zeros is None)
        assert new.grid.scales.dtype == old.grid.scales.dtype
        assert new.grid.scales.shape == old.grid.scales.shape
        assert torch.isfinite(new.grid.scales).all()
        assert (new.grid.scales > 0).all()
        assert not torch.equal(new.grid.scales, old.grid.scales)
    vectors = {name for name, p in original.items() if p.ndim == 1}
    assert set(tuned.others) == vectors
    assert all(tuned.others[name].dtype in (torch.float16, torch.bfloat16) for name in vectors)
    assert all(torch.equal(p, original[name]) and p.grad is None for name, p in model.module.named_parameters())


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_what_is_tuned_is_what_is_written(options, tmp_path):
    """Bit for bit, and tuned twice: nothing is left to chance."""
    model, plan, calibration = tiny("gpt2", tmp_path / "model", **{"tune": 2, **options})
    write_checkpoint(model, plan, tmp_path / "checkpoint", calibration=calibration)
    written, simulated = copy_of(model), copy_of(model)
    assert apply_checkpoint(written, tmp_path / "checkpoint") == plan
    result = tune(model, plan, list(quantize_layers(model, plan, calibration)), calibration, epochs=2)
    assert min(result.divergences) < result.divergences[0]
    put_layers(model, simulated, result.layers, others=result.others)
    for (name, a), b in zip(written.module.named_parameters(), simulated.module.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("options", [{}, {"embedding_bits": 4, "method": "gptq"}], ids=str)
def test_an_epoch_is_chosen_by_what_its_checkpoint_would_lose(options, tmp_path):
    """Scales and vectors are rounded while they are tuned. Of validation text a passage for every four that are learned from is read."""
    model, plan, calibration = tiny("gpt2", tmp_path, **options)
    result = tune(model, plan, list(quantize_layers(model, plan, calibration)), calibration, epochs=plan.tuned)
    held = calibration.validation.spread(2)
    for plan_variant, expected in ((untuned(plan), result.divergences[0]), (plan, min(result.divergences))):
        # Sums in another order.
        assert divergence(model, plan_variant, calibration, held).mean() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("architecture", ["gpt2", "mt5"])
def test_gradients_are_those_of_the_divergence(architecture, options, tmp_path):
    """Against differences of KL itself, along the gradient."""
    model, plan, calibration = tiny(architecture, tmp_path, **{"bits": 4, **options})
    student = Student(model, StoredLayers.of(quantize_layers(model, plan, calibration), model.device), recompute=False)
    quantized_copy = replace(model, module=student)
    (passage,) = prepare_whole(model, calibration.texts["eng"].at([1]), calibration.options)
    weights = torch.ones(sum(len(s.targets) for s in passage.sequences))
    _descend(LastHidden(model, passage.sequences), quantized_copy, passage.sequences, weights)
    free = [*student.scale_steps, *student.vector_steps]
    slope = sum(float(p.grad.square().sum()) for p in free)
    # Far beyond the rounding to 16 bits, and still near enough to straight.
    size = 0.02 / slope**0.5
    along = []
    for sign in (1, -1):
        with torch.no_grad():
            for p in free:
                p.copy_(sign * size * p.grad)
        along.append(float(score(model, quantized_copy, [passage]).kl.sum()))
    assert (along[0] - along[1]) / (2 * size) == pytest.approx(slope, rel=0.1)


NEW_PROCESS = """
import sys, torch, laaciq
from transformers import AutoModelForCausalLM
with torch.inference_mode():
    torch.save(AutoModelForCausalLM.from_pretrained(sys.argv[1])(torch.arange(5, 25)[None]).logits, sys.argv[2])
"""


def test_a_new_process_loads_what_was_simulated(tmp_path):
    model, plan, calibration = tiny("llama", tmp_path / "model", method="gptq")
    write_checkpoint(model, plan, tmp_path / "checkpoint", calibration=calibration)
    command = [sys.executable, "-c", NEW_PROCESS, str(tmp_path / "checkpoint"), str(tmp_path / "logits")]
    subprocess.run(command, check=True, capture_output=True)
    simulated = copy_of(model)
    layers, others = quantize_model(model, plan, calibration)
    put_layers(model, simulated, layers, others=others)
    with torch.inference_mode():
        expected = simulated.module(torch.arange(5, 25)[None]).logits
    torch.testing.assert_close(torch.load(tmp_path / "logits", weights_only=True), expected, rtol=1e-4, atol=1e-4)


def test_a_language_with_more_weight_gains_more(tmp_path):
    model, plan, calibration = tiny("llama", tmp_path, tune=6)
    before = losses(model, untuned(plan), calibration)
    gains = []
    for weights in ({"eng": 1.0, "hin": 0.0}, {"eng": 0.0, "hin": 1.0}):
        after = losses(model, plan.model_copy(update={"weights": weights}), calibration)
        gains.append(1 - after / before)
    assert gains[0][0] > gains[0][1]
    assert gains[1][1] > gains[1][0]


def test_a_language_counts_by_its_weight_however_long_its_text_is():
    short, long = (ScoredSequence([0] * (n + 1), list(range(n)), [1] * n) for n in (3, 20))
    pool = [("eng", long), ("hin", short), ("eng", long)]
    result = weights_by_token(pool, {"eng": 0.25, "hin": 0.75})
    assert result == pytest.approx({"eng": 0.25 / 40, "hin": 0.75 / 3})


def test_a_plan_s_passages_bound_what_is_read(tmp_path):
    model, plan, calibration = tiny("llama", tmp_path)
    layers = list(quantize_layers(model, plan, calibration))
    few = replace(calibration, texts=calibration.texts.spread(2))
    bounded = tune(model, plan.model_copy(update={"passages": 2}), layers, calibration, epochs=1)
    assert bounded.divergences == tune(model, plan, layers, few, epochs=1).divergences
    assert bounded.divergences != tune(model, plan, layers, calibration, epochs=1).divergences


def test_untuned_plans_are_quantized_one_tensor_at_a_time(tmp_path):
    model, plan, calibration = tiny("llama", tmp_path, tune=0)
    layers, others = quantize_model(model, plan, calibration)
    assert not isinstance(layers, list) and not others
    assert next(iter(layers))[0] == plan.tensors[0]


class Recorded(Progress):
    """What was announced, and what was done of it."""

    def __init__(self):
        self.stages = {}

    @contextmanager
    def stage(self, title, total, **options):
        done = []
        self.stages[title] = (total, done)
        yield done.append


@pytest.mark.parametrize("architecture", ["llama", "bert", "mt5"])
def test_progress_of_rounding_and_tuning_goes_in_small_steps_to_its_total(architecture, tmp_path):
    model, plan, calibration = tiny(architecture, tmp_path, tune=2, method="gptq")
    progress = Recorded()
    quantize_model(model, plan, calibration, progress=progress)
    assert list(progress.stages) == ["rounding", "tuning"]
    for total, done in progress.stages.values():
        assert sum(done) == pytest.approx(total)
        assert max(done) <= total / 2


def test_what_cannot_be_tuned(tmp_path):
    model, plan, calibration = tiny("llama", tmp_path)
    with pytest.raises(BadOption, match="needs calibration text"):
        write_checkpoint(model, plan, tmp_path / "checkpoint")
    with pytest.raises(BadOption, match="chosen on validation text"):
        write_checkpoint(model, plan, tmp_path / "checkpoint", calibration=replace(calibration, validation=None))
    short = replace(calibration, validation=calibration.validation.at([]))
    with pytest.raises(BadOption, match="too little text in eng"):
        write_checkpoint(model, plan, tmp_path / "checkpoint", calibration=short)
    assert not (tmp_path / "checkpoint").exists()
    with pytest.raises(BadOption, match="needs a profile"):
        make_plans(model.anatomy, WeightOptions(tune=1))


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "bloom", "mt5"])
def test_a_model_in_bfloat16_is_tuned_in_bfloat16(architecture, tmp_path):
    """Head and validation too. At least nine tenths of what float32 gains are gained."""
    folder, results = tmp_path / "model", []
    for dtype in (torch.float32, torch.bfloat16):
        model, plan, calibration = tiny(architecture, folder)
        model = load(find_model(folder), device="cpu", dtype=dtype)
        layers = list(quantize_layers(model, plan, calibration))
        results.append(tune(model, plan, layers, calibration, epochs=3).divergences)
    exact, fast = map(np.array, results)
    gained = exact[0] - exact.min()
    assert gained > 0
    assert fast[0] - fast.min() > 0.9 * gained
