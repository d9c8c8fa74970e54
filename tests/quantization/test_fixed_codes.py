import pytest
import torch

from laaciq.quantization import fixed_codes
from laaciq.quantization.fixed_codes import UnpackedCodes
from laaciq.quantization.matrices import quantize_matrix
from laaciq.quantization.plan import TensorPlan

OPTIONS = {
    "affine": {},
    "symmetric": {"symmetric": True},
    "a short last group": {"group_size": 24},
    "one scale for all": {"group_size": "tensor"},
    "kept weights and a correction": {"keep": 5.0, "rank": 2},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_pieces_make_the_whole(name, monkeypatch):
    """Weights and sums of gradients are those of the whole matrix, to the last bit, if a few outputs at a time are unpacked."""
    plan = TensorPlan(
        **{"name": "w", "shape": (10, 64), "bits": 4, "group_size": 16, "symmetric": False} | OPTIONS[name]
    )
    torch.manual_seed(0)
    matrix = quantize_matrix(torch.randn(plan.shape), plan)
    codes, scales, gradient = UnpackedCodes(matrix, plan), 1.5 * matrix.grid.scales, torch.randn(plan.shape)
    whole = codes.weights(scales), codes.by_scale(gradient)
    # Three outputs at a time: the last piece has one.
    monkeypatch.setattr(fixed_codes, "PIECE", 3 * 64)
    assert torch.equal(codes.weights(scales), whole[0])
    assert torch.equal(codes.by_scale(gradient), whole[1])
    assert codes.weights(scales, torch.bfloat16).equal(whole[0].bfloat16())
    # By definition: the sum over weights of ∂L/∂w · ∂w/∂s, with w linear in the scales.
    moved = codes.weights(2 * matrix.grid.scales.float()) - codes.weights(matrix.grid.scales.float())
    by_scale = (codes.by_scale(gradient) * matrix.grid.scales.float()).sum()
    torch.testing.assert_close(by_scale, (moved * gradient).sum())
