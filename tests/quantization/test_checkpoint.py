import pytest
import torch

import laaciq
from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from laaciq.options import BITS, MeasureOptions, QuantizeOptions
from laaciq.planning import make_plans
from laaciq.profiling.profile import profile_model
from laaciq.quantization import Calibration, apply_checkpoint, quantize_matrix, write_checkpoint
from laaciq.quantization.twins import twin_of
from tests.tiny import ARCHITECTURES, save_tiny

WEIGHTS = "model.safetensors"


def quantize(model, folder, calibration=None, **options):
    asked = QuantizeOptions(**{"group_size": 16, **options})
    profile = None if calibration is None else calibration.profile
    plan = make_plans(model.anatomy, asked, profile).first
    write_checkpoint(model, plan, folder, calibration=calibration)
    return plan


def twin(model, folder, table=None):
    copy = twin_of(model)
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
    quantized = twin(model, tmp_path / "checkpoint")
    for before, after, tensor in zip(model.anatomy.linears, quantized.anatomy.linears, plan.tensors, strict=True):
        expected = quantize_matrix(before.matrix, tensor).dequantize(tensor)
        assert torch.equal(after.matrix, expected)
        assert not torch.equal(after.matrix, before.matrix)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", [64, "channel", "tensor"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_size_on_disk_is_the_size_in_the_plan(tmp_path, bits, group_size, symmetric):
    model = load(find_model("reference"))
    plan = quantize(model, tmp_path, bits=bits, group_size=group_size, symmetric=symmetric)
    on_disk = (tmp_path / WEIGHTS).stat().st_size
    # What the count leaves out: the file's header of names and shapes.
    assert plan.size.model_bytes <= on_disk <= 1.01 * plan.size.model_bytes


def test_size_by_hand(tmp_path):
    """Reference model, 4 bits, groups of 64, symmetric: 4 + 16/64 bits a weight."""
    model = load(find_model("reference"))
    plan = make_plans(model.anatomy, QuantizeOptions()).first
    assert plan.size.block_bits_per_weight == 4.25
    blocks = 12 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 256 * 1024)
    rest = 19200 * 256 + 25 * 256
    assert plan.size.block_bytes == blocks * 4.25 / 8
    assert plan.size.model_bytes == blocks * 4.25 / 8 + rest * 2
    affine = make_plans(model.anatomy, QuantizeOptions(symmetric=False)).first
    assert affine.size.block_bits_per_weight == 4.25 + 4 / 64


def test_a_truncated_checkpoint(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path / "model")))
    quantize(model, tmp_path / "checkpoint")
    path = tmp_path / "checkpoint" / WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BrokenModel, match="broken or cut short"):
        twin(model, tmp_path / "checkpoint")


def test_a_plan_for_another_model(tmp_path):
    llama = load(find_model(save_tiny("llama", tmp_path / "a")))
    gpt2 = load(find_model(save_tiny("gpt2", tmp_path / "b")))
    plan = make_plans(llama.anatomy, QuantizeOptions(group_size=16)).first
    with pytest.raises(BrokenModel, match="plan is for another model"):
        write_checkpoint(gpt2, plan, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()
