from types import SimpleNamespace

import pytest
import torch

from laaciq.engine.bfloat16 import keep_onednn_safe
from laaciq.quantization.second_moments import MomentSums

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_those_of_float64(dtype, device):
    """Of two batches with weights, some of them zero, beside the inputs in the original."""
    keep_onednn_safe()
    torch.manual_seed(0)
    layer, sums = SimpleNamespace(name="layer"), MomentSums()
    moments, cross = torch.zeros(48, 48, dtype=torch.float64), torch.zeros(48, 48, dtype=torch.float64)
    for _ in range(2):
        x, original = torch.randn(2, 3, 100, 48).to(dtype)
        weights = torch.rand(300) * (torch.arange(300) % 7 > 0)
        sums.add(layer, x.to(device), weights.to(device), original.to(device))
        rows, others = x.reshape(300, 48).double(), original.reshape(300, 48).double()
        moments += rows.T @ (weights[:, None] * rows)
        cross += others.T @ (weights[:, None] * rows)
    found = sums.by_layer["layer"]
    assert found.tokens == 2 * sum(number % 7 > 0 for number in range(300))
    # Weighted rows are rounded to 8 bits of mantissa, and on a CPU products are too.
    error = 2**-7 if dtype == torch.bfloat16 else 1e-6
    for sum_of, expected in ((found.moments, moments), (found.cross, cross)):
        assert sum_of.dtype == torch.float32
        assert (sum_of.cpu().double() - expected).norm() < error * expected.norm()


@pytest.mark.parametrize("device", DEVICES[1:])
def test_a_gpu_adds_in_float32(device):
    """Products of small integers are exact, and their sum has more bits than bfloat16."""
    layer, sums = SimpleNamespace(name="layer"), MomentSums()
    rows = torch.randint(-8, 9, (1, 3000, 32), device=device).to(torch.bfloat16)
    sums.add(layer, rows, torch.ones(3000, device=device))
    assert torch.equal(sums.by_layer["layer"].moments.double(), rows[0].double().T @ rows[0].double())
