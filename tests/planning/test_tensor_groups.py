import pytest
import torch

from laaciq.models import find_model, load
from laaciq.planning.search_space import FORMATS, second_order_gain
from laaciq.planning.tensor_groups import base_plans, make_tensor_groups
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.plan import TensorPlan
from tests.tiny import save_tiny


def linear(name, shape=(64, 128)):
    return TensorPlan(name=name, shape=shape, bits=16, group_size=128, symmetric=False, rounding="second-order")


def test_vllm_takes_fused_layers_alike_and_only_what_it_loads():
    names = ["q_proj", "k_proj", "v_proj", "o_proj"]
    tensors = [linear(f"model.layers.0.self_attn.{name}.weight") for name in names]
    tensors += [linear(f"model.layers.0.mlp.{name}.weight") for name in ("gate_proj", "up_proj", "down_proj")]
    units = make_tensor_groups(tensors, FORMATS["full"], "vllm")
    assert [len(unit.choices[0]) for unit in units] == [3, 1, 2, 1]
    for plan in (plan for unit in units for plans in unit.choices for plan in plans):
        assert plan.bits in (4, 8, 16)
        assert plan.symmetric or plan.bits != 8
        assert not plan.keep


def test_vllm_takes_all_experts_of_a_block_alike():
    names = [
        f"model.layers.{b}.mlp.experts.{e}.{p}_proj" for b in (0, 1) for e in (0, 1) for p in ("gate", "up", "down")
    ]
    tensors = [linear(f"{name}.weight") for name in names]
    assert [len(unit.choices[0]) for unit in make_tensor_groups(tensors, FORMATS["fast"], "vllm")] == [6, 6]
    assert len(make_tensor_groups(tensors, FORMATS["fast"], "laaciq")) == 12


def test_groups_that_do_not_divide_the_inputs_are_not_for_vllm():
    (unit,) = make_tensor_groups([linear("a.weight", (64, 96))], FORMATS["full"], "vllm")
    assert {plan.group_size for (plan,) in unit.choices if plan.quantized} == {32}


def test_ways_that_mean_the_same_stand_once():
    (unit,) = make_tensor_groups([linear("a.weight", (8, 32))], FORMATS["full"], "laaciq")
    sizes = [(plan.bits, plan.group_inputs, plan.kept, plan.rank) for (plan,) in unit.choices]
    assert len(sizes) == len(set(sizes))


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mt5"])
def test_token_matrices_are_planned_only_for_the_whole_model(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path / "model")), device="cpu")
    blocks = base_plans(model.anatomy, symmetric=False, token_matrices=False)
    whole = base_plans(model.anatomy, symmetric=False, token_matrices=True)
    assert [plan.name for plan in blocks] == [layer.name for layer in model.anatomy.linears]
    assert {plan.name for plan in whole[len(blocks) :]} == {entry.name for entry in model.anatomy.token_matrices}


def test_second_order_rounding_gains_nothing_on_independent_inputs_and_much_on_alike_ones():
    independent = torch.diag(torch.tensor([1.0, 2.0, 3.0]))
    assert second_order_gain(Hessian(independent)) == pytest.approx(1.0)
    alike = torch.ones(3, 3) + 0.01 * torch.eye(3)
    assert second_order_gain(Hessian(alike)) < 0.5
