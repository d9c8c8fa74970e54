import pytest
import torch

from laaciq.chain import twin
from laaciq.errors import BrokenModel
from laaciq.models import find_model, load
from laaciq.options import BITS
from laaciq.planning import uniform_plan
from laaciq.quantization import write_checkpoint
from laaciq.quantization.checkpoint import WEIGHTS
from laaciq.quantization.grid import round_to_nearest
from tests.tiny import ARCHITECTURES, save_tiny


def quantize(model, folder, **options):
    plan = uniform_plan(model.anatomy, **{"method": "rtn", "bits": 4, "group_size": 16, "symmetric": True, **options})
    write_checkpoint(model, plan, folder)
    return plan


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_weights_mean_exactly_the_simulated_ones(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path / "model")))
    plan = quantize(model, tmp_path / "checkpoint")
    quantized = twin(model, tmp_path / "checkpoint")
    for before, after, tensor in zip(model.anatomy.linears, quantized.anatomy.linears, plan.tensors, strict=True):
        expected = round_to_nearest(before.matrix, tensor).dequantize(tensor)
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
    plan = uniform_plan(model.anatomy, method="rtn", bits=4, group_size=64, symmetric=True)
    assert plan.size.block_bits_per_weight == 4.25
    blocks = 12 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 256 * 1024)
    rest = 19200 * 256 + 25 * 256
    assert plan.size.block_bytes == blocks * 4.25 / 8
    assert plan.size.model_bytes == blocks * 4.25 / 8 + rest * 2
    affine = uniform_plan(model.anatomy, method="rtn", bits=4, group_size=64, symmetric=False)
    assert affine.size.block_bits_per_weight == 4.25 + 4 / 64


def test_a_truncated_checkpoint(tmp_path):
    model = load(find_model(save_tiny("llama", tmp_path / "model")))
    quantize(model, tmp_path / "checkpoint")
    path = tmp_path / "checkpoint" / WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BrokenModel, match="broken or for another model"):
        twin(model, tmp_path / "checkpoint")


def test_a_plan_for_another_model(tmp_path):
    llama = load(find_model(save_tiny("llama", tmp_path / "a")))
    gpt2 = load(find_model(save_tiny("gpt2", tmp_path / "b")))
    plan = uniform_plan(llama.anatomy, method="rtn", bits=4, group_size=16, symmetric=True)
    with pytest.raises(BrokenModel, match="plan is for another model"):
        write_checkpoint(gpt2, plan, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()
