import json
import os
import subprocess
import sys
from functools import cache

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import laaciq
from laaciq.commands.bench import SAFE_BFLOAT16
from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from laaciq.options import BITS, MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.profiling.profile import profile_model
from laaciq.quantization import Calibration, apply_checkpoint, quantize_matrix, write_checkpoint
from laaciq.quantization.layers import QuantizedLinear
from laaciq.trials.quantized_copy import copy_of
from tests.tiny import ARCHITECTURES, save_tiny

WEIGHTS = "model.safetensors"


def quantize(model, folder, calibration=None, **options):
    weight_options = WeightOptions(**{"group_size": 16, **options})
    profile = None if calibration is None else calibration.profile
    plan = make_plans(model.anatomy, weight_options, profile).first
    write_checkpoint(model, plan, folder, calibration=calibration)
    return plan


def dequantized_copy(model, folder, table=None):
    copy = copy_of(model)
    apply_checkpoint(copy, folder, table=table)
    return copy


def calibrate(model):
    texts = laaciq.read_split("builtin").calibration.select(["eng", "swa", "hin"]).spread(2)
    options = MeasureOptions()
    return Calibration(profile_model(model, texts, options, outlier_kurtosis=50), texts, options)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_weights_mean_exactly_the_simulated_ones(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path / "model")))
    plan = quantize(model, tmp_path / "checkpoint")
    quantized = dequantized_copy(model, tmp_path / "checkpoint")
    for before, after, tensor in zip(model.anatomy.linears, quantized.anatomy.linears, plan.tensors, strict=True):
        expected = quantize_matrix(before.matrix, tensor).dequantize(tensor)
        assert torch.equal(after.matrix, expected)
        assert not torch.equal(after.matrix, before.matrix)


@pytest.mark.parametrize(
    ("bits", "group_size", "symmetric"),
    [
        (2, 64, True),
        (3, "channel", False),
        (3, 64, True),
        (4, "tensor", True),
        (4, 64, False),
        (6, "tensor", False),
        (8, "channel", True),
    ],
)
def test_size_on_disk_is_the_size_in_the_plan(tmp_path, bits, group_size, symmetric):
    model = load(find_model("reference"))
    plan = quantize(model, tmp_path, bits=bits, group_size=group_size, symmetric=symmetric)
    on_disk = (tmp_path / WEIGHTS).stat().st_size
    # What the count leaves out: the file's header of names and shapes.
    assert plan.size.model_bytes <= on_disk <= 1.01 * plan.size.model_bytes


def test_size_by_hand(tmp_path):
    """Reference model, 4 bits, groups of 64, symmetric: 4 + 16/64 bits per weight."""
    model = load(find_model("reference"))
    plan = make_plans(model.anatomy, WeightOptions()).first
    assert plan.size.block_bits_per_weight == 4.25
    blocks = 12 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 256 * 1024)
    rest = 19200 * 256 + 25 * 256
    assert plan.size.block_bytes == blocks * 4.25 / 8
    assert plan.size.model_bytes == blocks * 4.25 / 8 + rest * 2
    affine = make_plans(model.anatomy, WeightOptions(symmetric=False)).first
    assert affine.size.block_bits_per_weight == 4.25 + 4 / 64


def test_a_truncated_checkpoint(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path / "model")))
    quantize(model, tmp_path / "checkpoint")
    path = tmp_path / "checkpoint" / WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BrokenModel, match="broken or cut short"):
        dequantized_copy(model, tmp_path / "checkpoint")


def test_a_plan_for_another_model(tmp_path):
    llama = load(find_model(save_tiny("llama", tmp_path / "a")))
    gpt2 = load(find_model(save_tiny("gpt2", tmp_path / "b")))
    plan = make_plans(llama.anatomy, WeightOptions(group_size=16)).first
    with pytest.raises(BrokenModel, match="plan is for another model"):
        write_checkpoint(gpt2, plan, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here"))]
KINDS = [
    *({"bits": bits} for bits in BITS),
    {"bits": 3, "symmetric": False, "method": "mse"},
    {"keep": 5.0, "method": "mse"},
    {"keep": 1.0, "keep_by": "saliency", "symmetric": False},
    {"method": "adaptive", "table_overhead": 2.0},
    {"protect": ("0",), "attention_bits": 8},
]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """Models with their calibration, each made once."""

    @cache
    def make(architecture, device):
        folder = save_tiny(architecture, tmp_path_factory.mktemp(architecture))
        model = load(find_model(folder), device=device)
        return model, calibrate(model)

    return make


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "bloom", "xglm", "mt5"])
def test_transformers_loads_what_was_simulated(architecture, options, device, tmp_path, calibrated):
    model, calibration = calibrated(architecture, device)
    plan = quantize(model, tmp_path / "checkpoint", calibration, **options)
    loaded = load(find_model(tmp_path / "checkpoint"), device=device)
    assert any(isinstance(layer, QuantizedLinear) for layer in loaded.module.modules())
    ids = torch.arange(5, 25, device=device)[None]
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if model.kind == "encoder-decoder" else {})
    for table in (None, *range(len(plan.tables))):
        simulated = dequantized_copy(model, tmp_path / "checkpoint", table)
        with torch.inference_mode(), loaded.module.language.using(table):
            # The same float32 weights in the same products; Conv1D multiplies in another order.
            torch.testing.assert_close(
                loaded.module(**inputs).logits.float(), simulated.module(**inputs).logits.float(), rtol=1e-4, atol=1e-4
            )


def test_a_checkpoint_can_be_saved_again(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path / "model")))
    quantize(model, tmp_path / "checkpoint", method="mse", keep=1.0)
    first = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint")
    first.save_pretrained(tmp_path / "again")
    second = AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        assert torch.equal(first(ids).logits, second(ids).logits)


WITHOUT = """
import sys, transformers
for folder in sys.argv[1:]:
    try:
        transformers.AutoModelForCausalLM.from_pretrained(folder)
    except ValueError as error:
        print(error)
assert "laaciq" not in sys.modules
import laaciq
loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
print(type(loaded.model.layers[0].mlp.up_proj).__name__)
"""


def test_without_laaciq_transformers_refuses_and_names_it_and_importing_it_late_is_enough(tmp_path):
    """Transformers alone knows no method laaciq: it would warn, and initialize the quantized layers at random. Below, a process imports
    laaciq first.
    """
    model = load(find_model(save_tiny("llama", tmp_path / "model")))
    quantize(model, tmp_path / "checkpoint")
    AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint").save_pretrained(tmp_path / "again")
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "checkpoint"), str(tmp_path / "again")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("quantized by laaciq") == 2
    assert done.stdout.count("'import laaciq' before loading") == 2
    assert done.stdout.splitlines()[-1] == "QuantizedLinear"


INT4 = """
import json, sys, torch, laaciq
from transformers import AutoModelForCausalLM
device = sys.argv[2]
exact = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).to(device)
fast = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).to(device)
ids = torch.arange(5, 17, device=device)[None]
found = []
with torch.inference_mode():
    for table in (None, 0, 1):
        with exact.language.using(table), fast.language.using(table):
            a, b = exact(ids).logits, fast(ids).logits.float()
            layers = [layer for layer in fast.modules() if getattr(layer, "kernel", None) in ("int4", "triton")]
            codes = [(layer.codes if layer.tiles is None else layer.tiles).data_ptr() for layer in layers]
            found.append([((a - b).norm() / a.norm()).item(), codes])
fast.save_pretrained(sys.argv[3])
print(json.dumps(found))
"""


@pytest.mark.parametrize("device", DEVICES)
def test_kernels_compute_the_same_a_switch_copies_no_weights_and_codes_are_saved_as_they_were(tmp_path, device):
    """In a process of its own: bfloat16 products kill it on some CPUs unless oneDNN is held back."""
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_key_value_heads": 4}
    model = load(find_model(save_tiny("llama", tmp_path / "model", **shape)))
    quantize(model, tmp_path / "checkpoint", calibrate(model), method="adaptive", group_size=32, table_overhead=1.0)
    command = [sys.executable, "-c", INT4, str(tmp_path / "checkpoint"), device, str(tmp_path / "again")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=SAFE_BFLOAT16 | os.environ)
    result = json.loads(done.stdout)
    assert len(result[0][1]) == 14  # all linear layers of two blocks
    assert result[0][1] == result[1][1] == result[2][1]
    # bfloat16 has eight bits; errors add up over two blocks.
    assert all(error < 0.03 for error, _ in result)
    assert len({error for error, _ in result}) == 3
    before, after = (load_file(tmp_path / name / WEIGHTS) for name in ("checkpoint", "again"))
    assert all(torch.equal(after[name], before[name]) for name in before if name.endswith(".codes"))


def test_scales_that_are_no_numbers(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path / "model")))
    quantize(model, tmp_path / "checkpoint")
    path = tmp_path / "checkpoint" / WEIGHTS
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith(".scales"))
    tensors[name][0, 0] = float("nan")
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(BrokenModel, match=r"scales of .* NaN or infinite values"):
        load(find_model(tmp_path / "checkpoint"))
    with pytest.raises(BrokenModel, match=r"scales of .* NaN or infinite values"):
        dequantized_copy(model, tmp_path / "checkpoint")


def test_missing_tensors(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path / "model")))
    quantize(model, tmp_path / "checkpoint")
    path = tmp_path / "checkpoint" / WEIGHTS
    tensors = load_file(path)
    del tensors[next(name for name in tensors if name.endswith(".codes"))]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(BrokenModel, match="half-written"):
        load(find_model(tmp_path / "checkpoint"))
    with pytest.raises(BrokenModel, match="half-written"):
        dequantized_copy(model, tmp_path / "checkpoint")


def test_a_config_for_another_model(tmp_path):
    quantize(load(find_model(save_tiny("llama", tmp_path / "a"))), tmp_path / "checkpoint")
    gpt2 = json.loads((save_tiny("gpt2", tmp_path / "b") / "config.json").read_text())
    config = tmp_path / "checkpoint/config.json"
    gpt2["quantization_config"] = json.loads(config.read_text())["quantization_config"]
    config.write_text(json.dumps(gpt2))
    with pytest.raises(BrokenModel, match="plan is for another model"):
        load(find_model(tmp_path / "checkpoint"))


def test_large_models_are_written_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr("laaciq.quantization.checkpoint.SHARD_BYTES", 20_000)
    model = load(find_model(save_tiny("llama", tmp_path / "model")), device="cpu")
    quantize(model, tmp_path / "checkpoint", method="mse")
    assert len(list((tmp_path / "checkpoint").glob("model-*-of-*.safetensors"))) > 2
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        loaded = load(find_model(tmp_path / "checkpoint"), device="cpu").module(ids).logits
        assert torch.equal(loaded, dequantized_copy(model, tmp_path / "checkpoint").module(ids).logits)


def test_changing_the_type_of_a_model_leaves_what_is_stored(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path / "model")))
    quantize(model, tmp_path / "checkpoint")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint", dtype=torch.float32)
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        before = loaded(ids).logits
        after = loaded.to(torch.float64).to(torch.float16).to(torch.float32)(ids).logits
    assert all(layer.scales.dtype == torch.float16 for layer in loaded.modules() if isinstance(layer, QuantizedLinear))
    # Embeddings and norms went through float16 and back; the quantized layers lost nothing.
    torch.testing.assert_close(after, before, rtol=0.01, atol=0.01)
