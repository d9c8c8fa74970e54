import pytest
import torch

from laaciq.quantization.layers import QuantizedLinear, why_dequantized
from laaciq.quantization.plan import TensorPlan

CPU = torch.device("cpu")


def plan(**changes):
    return TensorPlan(**{"name": "w", "shape": (64, 64), "bits": 4, "group_size": 64, "symmetric": True, **changes})


@pytest.mark.parametrize("changes", [{}, {"group_size": 32}, {"group_size": "channel"}, {"symmetric": False}])
def test_what_runs_on_int4_kernels(changes):
    layer = QuantizedLinear(plan(**changes), bias=False)
    layer.prepare(torch.bfloat16)
    assert layer.kernel == "int4"
    assert why_dequantized(layer.plan, torch.bfloat16, CPU) is None


@pytest.mark.parametrize(
    ("changes", "dtype", "device", "words"),
    [
        ({}, torch.float32, "cpu", "need bfloat16; this computes in float32"),
        ({}, torch.bfloat16, "mps", "need a CPU or a CUDA device"),
        ({"bits": 3}, torch.float32, "cpu", "need 4-bit codes; these have 3"),
        ({"keep": 1.0}, torch.bfloat16, "cpu", "1 % are kept here"),
        ({"rank": 2}, torch.bfloat16, "cpu", "no low-rank correction; it has rank 2 here"),
        ({"shape": (48, 64)}, torch.bfloat16, "cpu", "do not fit groups of 64 in a layer of 48×64"),
        ({"shape": (64, 96)}, torch.bfloat16, "cpu", "do not fit groups of 64 in a layer of 64×96"),
        ({"group_size": "tensor"}, torch.bfloat16, "cpu", "do not fit groups of 64"),
        ({"group_size": 16}, torch.bfloat16, "cpu", "do not fit groups of 16"),
    ],
)
def test_what_keeps_a_layer_off_int4_kernels(changes, dtype, device, words):
    assert words in why_dequantized(plan(**changes), dtype, torch.device(device))
