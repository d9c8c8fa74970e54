import pytest
import torch

from laaciq.errors import BrokenModel
from laaciq.exporting.contents import Coded
from laaciq.exporting.gguf import from_codes
from laaciq.exporting.gguf_experts import joined, stack_experts
from laaciq.quantization import quantize_matrix
from laaciq.quantization.plan import TensorPlan

NAMES = [f"model.layers.0.mlp.experts.{number}.up_proj.weight" for number in range(3)]


def expert(number, **options):
    matrix = torch.randn(8, 64, generator=torch.Generator().manual_seed(number))
    plan = TensorPlan(
        **{"name": NAMES[number], "shape": (8, 64), "bits": 4, "group_size": 32, "symmetric": True, **options}
    )
    return Coded(quantize_matrix(matrix, plan), plan)


@pytest.mark.parametrize(
    "options", [{}, {"symmetric": False}, {"group_size": "tensor"}, {"bits": 8, "group_size": "channel"}], ids=str
)
def test_stacked_experts_keep_their_weights(options):
    experts = [expert(number, **options) for number in range(3)]
    whole = joined(experts)
    assert torch.equal(whole.weights(), torch.cat([each.weights() for each in experts]))
    assert from_codes(whole, None).data.shape[0] == 24


def test_experts_that_are_stored_differently_are_not_joined():
    assert joined([expert(0), expert(1, bits=8)]) is None
    assert joined([expert(0), torch.zeros(8, 64)]) is None
    assert joined([expert(0, keep=5.0), expert(1, keep=5.0)]) is None


def test_experts_wait_for_each_other_in_any_order():
    norm = torch.zeros(4)
    contents = [(NAMES[2], torch.full((1, 4), 2.0)), ("norm.weight", norm), (NAMES[0], torch.zeros(1, 4))]
    contents.append((NAMES[1], torch.ones(1, 4)))
    stacked = dict(stack_experts(contents, 3))
    assert list(stacked) == ["norm.weight", "model.layers.0.mlp.experts.up_proj.weight"]
    parts = stacked["model.layers.0.mlp.experts.up_proj.weight"]
    assert list(parts) == NAMES
    assert joined(list(parts.values()))[:, 0].tolist() == [0, 1, 2]
    with pytest.raises(BrokenModel, match="has not 4 experts"):
        dict(stack_experts(contents, 4))
