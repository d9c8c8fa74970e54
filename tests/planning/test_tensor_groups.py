import pytest
import torch

from laaciq.models import find_model, load
from laaciq.planning.search_space import second_order_gain
from laaciq.planning.tensor_groups import base_plans, make_tensor_groups
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.plan import TensorPlan
from tests.tiny import save_tiny


def linear(name, shape=(64, 128)):
    return TensorPlan(name=name, shape=shape, bits=16, group_size=128, symmetric=False, rounding="second-order")


def block_tensors():
    names = ["q_proj", "k_proj", "v_proj", "o_proj"]
    tensors = [linear(f"model.layers.0.self_attn.{name}.weight") for name in names]
    return tensors + [linear(f"model.layers.0.mlp.{name}.weight") for name in ("gate_proj", "up_proj", "down_proj")]


@pytest.mark.parametrize(("runtime", "bits"), [("vllm", {4, 8, 16}), ("vllm-cpu", {4, 16})])
def test_vllm_takes_fused_layers_alike_and_only_what_it_loads(runtime, bits):
    units = make_tensor_groups(block_tensors(), "full", runtime)
    assert [len(unit.choices[0]) for unit in units] == [3, 1, 2, 1]
    plans = [plan for unit in units for plans in unit.choices for plan in plans]
    assert {plan.bits for plan in plans} == bits
    assert all(plan.symmetric or plan.bits != 8 for plan in plans)
    assert not any(plan.keep or plan.rank for plan in plans)


def test_experts_of_a_block_are_one_layer_for_vllm():
    tensors = [linear(f"model.layers.0.mlp.experts.{n}.{p}.weight") for n in (0, 1) for p in ("gate_proj", "down_proj")]
    assert [len(unit.choices[0]) for unit in make_tensor_groups(tensors, "fast", "vllm")] == [4]
    assert [len(unit.choices[0]) for unit in make_tensor_groups(tensors, "fast", "llama.cpp")] == [2, 2]
    assert len(make_tensor_groups(tensors, "fast", "laaciq")) == 4


def test_vllm_takes_all_experts_of_a_block_alike():
    names = [
        f"model.layers.{b}.mlp.experts.{e}.{p}_proj" for b in (0, 1) for e in (0, 1) for p in ("gate", "up", "down")
    ]
    tensors = [linear(f"{name}.weight") for name in names]
    assert [len(unit.choices[0]) for unit in make_tensor_groups(tensors, "fast", "vllm")] == [6, 6]
    assert len(make_tensor_groups(tensors, "fast", "laaciq")) == 12


def test_groups_that_do_not_divide_the_inputs_are_not_for_vllm():
    (unit,) = make_tensor_groups([linear("a.weight", (64, 96))], "full", "vllm")
    # 128 inputs are all that there are: the whole row.
    assert {plan.group_inputs for (plan,) in unit.choices if plan.quantized} == {32, 96}
    with_odd_outputs = make_tensor_groups([linear("a.weight", (40, 128))], "full", "vllm-cpu")
    assert [plan.bits for (plan,) in with_odd_outputs[0].choices] == [16]


def test_llama_cpp_plans_its_blocks_at_the_size_of_its_file():
    (unit,) = make_tensor_groups([linear("a.weight", (64, 128))], "full", "llama.cpp")
    sizes = zip(unit.choices, unit.sizes, strict=True)
    stored = {(plan.bits, plan.symmetric): size / plan.weights for (plan,), size in sizes}
    # Q4_0, Q4_1 and Q8_0: 32 weights with a scale, and an offset in Q4_1, of 16 bits each.
    assert stored == {(4, True): 4 + 16 / 32, (4, False): 4 + 32 / 32, (8, True): 8 + 16 / 32, (16, False): 16}
    (unit,) = make_tensor_groups([linear("a.weight", (64, 48))], "full", "llama.cpp")
    assert [plan.bits for (plan,) in unit.choices] == [16]


def test_ways_that_mean_the_same_stand_once():
    (unit,) = make_tensor_groups([linear("a.weight", (8, 32))], "full", "laaciq")
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
