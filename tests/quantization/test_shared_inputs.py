"""Layers that read the same input: one sum of second moments, one set of factors, and codes as if each were alone."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

import laaciq
from laaciq.models import find_model, load
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.profiling.profile import profile_model
from laaciq.quantization import Calibration, hessian
from laaciq.quantization.calibration import TensorCalibration
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.matrices import quantize_matrices, quantize_matrix
from laaciq.quantization.model import quantize_layers
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.second_moments import MomentSums
from tests.tiny import save_tiny

INPUTS = 150


def test_sums_are_shared_as_long_as_inputs_are():
    random = torch.Generator().manual_seed(0)
    first, second = torch.randn(7, 3, generator=random), torch.randn(7, 3, generator=random)
    query, key, late = (SimpleNamespace(name=name) for name in ("query", "key", "late"))
    sums, weights = MomentSums(), torch.ones(7)
    for layer in (query, key):
        sums.add(layer, first, weights)
    assert sums.by_layer["query"] is sums.by_layer["key"]
    for layer in (query, key, late):
        sums.add(layer, second, weights)
    assert sums.by_layer["query"] is sums.by_layer["key"]
    torch.testing.assert_close(sums.by_layer["key"].moments, first.T @ first + second.T @ second)
    torch.testing.assert_close(sums.by_layer["late"].moments, second.T @ second)
    sums.add(key, first, weights)
    torch.testing.assert_close(sums.by_layer["key"].moments, 2 * first.T @ first + second.T @ second)
    torch.testing.assert_close(sums.by_layer["query"].moments, first.T @ first + second.T @ second)


def test_tokens_without_weight_do_not_count():
    random = torch.Generator().manual_seed(0)
    inputs, weights = torch.randn(2, 4, 3, generator=random), torch.tensor([0.5, 0.0, 2.0, 1.0, 0.0, 0.0, 0.1, 3.0])
    sums = MomentSums()
    sums.add(SimpleNamespace(name="query"), inputs, weights)
    seen = sums.by_layer["query"]
    torch.testing.assert_close(seen.moments, torch.einsum("t,ti,tj->ij", weights, *[inputs.reshape(8, 3)] * 2))
    assert seen.tokens == 5


@pytest.mark.parametrize("rounding", ["second-order", "compensated"])
def test_matrices_are_rounded_together_as_alone(rounding):
    random = torch.Generator().manual_seed(0)
    # Outputs, bits, group size, symmetric, percent kept, rank: the first three have equal groups.
    kinds = [
        (64, 4, 32, False, 0.0, 0),
        (32, 3, 32, True, 2.0, 0),
        (16, 2, 32, False, 0.0, 3),
        (32, 4, "tensor", True, 0.0, 0),
    ]
    plans = [
        TensorPlan(
            name=str(number), shape=(outputs, INPUTS), bits=bits, group_size=size, symmetric=symmetric, keep=keep,
            rank=rank, clip="effective", rounding=rounding,
        )
        for number, (outputs, bits, size, symmetric, keep, rank) in enumerate(kinds)
    ]  # fmt: skip
    plans.append(plans[0].model_copy(update={"rounding": "nearest"}))
    matrices = [torch.randn(plan.shape, generator=random) for plan in plans]
    rows = torch.randn(400, INPUTS, generator=random) + torch.randn(400, 1, generator=random)
    moments = rows.T @ rows / 400
    known = TensorCalibration(moments.diagonal()[None] / moments.diagonal().mean(), effective_kurtosis=0.0)
    together = quantize_matrices(matrices, plans, known, Hessian(moments))
    for matrix, plan, quantized in zip(matrices, plans, together, strict=True):
        alone = quantize_matrix(matrix, plan, known, Hessian(moments))
        # Another number of columns may change the last bit of a product, and so one code of an output.
        assert (quantized.codes == alone.codes).all(1).float().mean() >= 0.9
        torch.testing.assert_close(quantized.grid.scales, alone.grid.scales)
        assert (quantized.low_rank is None) == (not plan.rank)
        assert (quantized.kept is None) == (not plan.kept)


def test_each_distinct_input_is_factorized_once(tmp_path, monkeypatch):
    """Of a Llama block: query, key and value; output; gate and up; down."""
    model = load(find_model(save_tiny("llama", tmp_path)), device="cpu")
    texts = laaciq.read_split("builtin").calibration.select(["eng"]).spread(2)
    profile = profile_model(model, texts, MeasureOptions(), outlier_kurtosis=50)
    plan = make_plans(model.anatomy, WeightOptions(method="gptq", group_size=16), profile).first
    calls: Counter[int] = Counter()
    real = hessian.inverse_factor

    def counted(moments):
        calls[len(moments)] += 1
        return real(moments)

    monkeypatch.setattr(hessian, "inverse_factor", counted)
    layers = list(quantize_layers(model, plan, Calibration(None, texts, MeasureOptions())))
    blocks = len(model.anatomy.block_names)
    assert len(layers) == 7 * blocks
    assert calls.total() == 4 * blocks


def test_moments_of_a_model_in_bfloat16_round_as_well():
    """Its inputs are multiplied in bfloat16 on a CPU. Codes from these moments lose at most 1 % more, by the exact ones."""
    random = torch.Generator().manual_seed(0)
    mixing = torch.randn(INPUTS, INPUTS, generator=random) * torch.logspace(-2, 1, INPUTS)
    batches = [(torch.randn(96, INPUTS, generator=random) @ mixing).bfloat16() for _ in range(20)]
    layer, weights = SimpleNamespace(name="layer"), torch.rand(96, generator=random) / 1e4
    summed = []
    for kind in (torch.float32, torch.bfloat16):
        sums = MomentSums()
        for inputs in batches:
            sums.add(layer, inputs.to(kind), weights, original=inputs.to(kind))
        summed.append(sums.by_layer["layer"])
    exact, fast = summed
    assert fast.moments.dtype == fast.cross.dtype == torch.float32
    assert (fast.moments - exact.moments).norm() < 2e-3 * exact.moments.norm()
    matrix = torch.randn(32, INPUTS, generator=random)
    plan = TensorPlan(
        name="w", shape=(32, INPUTS), bits=3, group_size=50, symmetric=False, clip="mse", rounding="second-order"
    )
    losses = []
    for moments in (exact, fast):
        error = quantize_matrix(matrix, plan, None, Hessian(moments.moments)).dequantize(plan) - matrix
        losses.append(((error @ exact.moments) * error).sum())
    assert losses[1] < 1.01 * losses[0]
