"""What the child measures, in this process; tests of the parent and of the command line start it."""

from functools import partial

import pytest
import torch

from laaciq.commands.quantize import quantize
from laaciq.errors import BadOption, LaaciqError
from laaciq.options import SpeedOptions
from laaciq.quantization.layers import QuantizedLinear, prepare_layers
from laaciq.quantization.plan import TensorPlan
from laaciq.speed.child import measure_both
from laaciq.speed.layers import kernels_of, weight_bytes
from laaciq.speed.results import Request
from tests.tiny import save_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder of a model by its architecture."""
    root = tmp_path_factory.mktemp("models")
    return {name: save_tiny(name, root / name) for name in ("llama", "bert", "mt5")}


def measure(checkpoint, against, device="cpu", step=lambda: None, **options):
    speed_options = SpeedOptions(**{"prompt_tokens": 8, "new_tokens": 3, **options})
    return measure_both(
        Request(checkpoint=str(checkpoint), against=str(against), device=device, options=speed_options), step
    )


def test_masked_models_decode_nothing(tiny, tmp_path):
    quantize(tiny["bert"], out=tmp_path / "c", method="rtn", group_size=16)
    bench = measure(tmp_path / "c", tiny["bert"])
    assert bench.original.prefill > 0
    assert bench.quantized.decoding is bench.ratios.decoding is None
    assert bench.kernels.dequantized == 12  # six linear layers in each of two blocks


def test_encoder_decoders_decode(tiny):
    assert measure(tiny["mt5"], tiny["mt5"]).quantized.decoding > 0


def test_a_model_that_is_not_ours(tiny):
    steps = []
    bench = measure(tiny["llama"], tiny["llama"], step=lambda: steps.append(1), batch=2)
    assert bench.kernels is None
    assert bench.ratios.weight_bytes == 1
    assert len(steps) == 2 * (1 + 1 + bench.rounds)


def test_an_end_token_ends_nothing(tmp_path):
    """With a vocabulary of one token, every token is the end."""
    model = save_tiny("llama", tmp_path / "m", vocab_size=1, bos_token_id=0, eos_token_id=0, pad_token_id=0)
    assert measure(model, model).quantized.decoding > 0


def test_two_models_of_different_kinds(tiny):
    with pytest.raises(BadOption, match=r"bert is masked, .*llama is causal: give the model that it was made from"):
        measure(tiny["bert"], tiny["llama"])


def test_too_long_for_the_model(tiny):
    with pytest.raises(BadOption, match=r"make 131, .* takes 128: give fewer"):
        measure(tiny["llama"], tiny["llama"], prompt_tokens=128)


def test_an_unknown_device(tiny):
    with pytest.raises(BadOption, match="unknown device 'moon'"):
        measure(tiny["llama"], tiny["llama"], device="moon")


def test_kernels_and_what_they_hold():
    """On the int4 kernel: codes once, half a byte each, a scale of 2 bytes per row, and in the kernel's grid a scale and a zero of 2 bytes."""
    shape = {"name": "w", "shape": (64, 64), "group_size": 64, "symmetric": True}
    module = torch.nn.ModuleList(QuantizedLinear(TensorPlan(bits=bits, **shape), bias=False) for bits in (4, 8))
    for layer in module:
        layer.dtype = torch.bfloat16
    prepare_layers(module)
    kernels = kernels_of(module)
    assert (kernels.triton, kernels.int4, kernels.dequantized, kernels.few_tokens) == (0, 1, 1, None)
    assert kernels.reasons == {"4-bit kernels need 4-bit codes; these have 8": 1}
    assert weight_bytes(module[0]) == 64 * 64 // 2 + 64 * 2 + 64 * 2 * 2


def test_decoding_is_measured_compiled(tiny, tmp_path, monkeypatch):
    """Traced as always, but not made into machine code, which takes long."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    quantize(tiny["llama"], out=tmp_path / "c", method="rtn", group_size=16)
    bench = measure(tmp_path / "c", tiny["llama"], decoding="compiled")
    assert bench.not_compiled == {}
    assert bench.quantized.prefill > 0
    assert bench.quantized.decoding is None
    assert bench.ratios.compiled_decoding == bench.quantized.compiled_decoding / bench.original.compiled_decoding


def test_what_cannot_be_compiled_is_said(tiny, monkeypatch):
    def refuse(*args, **options):
        raise RuntimeError("graph break\nat length")

    monkeypatch.setattr(torch, "compile", lambda function, **options: refuse)
    bench = measure(tiny["llama"], tiny["llama"], decoding="both")
    assert bench.not_compiled == {str(tiny["llama"]): "RuntimeError: graph break"}
    assert bench.quantized.decoding > 0
    assert bench.ratios.compiled_decoding is None
    with pytest.raises(LaaciqError, match="could not be compiled: RuntimeError: graph break; give --decoding eager"):
        measure(tiny["llama"], tiny["llama"], decoding="compiled")
    assert "for causal models" in measure(tiny["mt5"], tiny["mt5"], decoding="both").not_compiled[str(tiny["mt5"])]
