"""Experts are linear layers: the same function, second moments of the tokens that the router sends, and losses as of any linear layer."""

import copy
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM

import laaciq
from laaciq.corpus import read_split
from laaciq.models import find_model, load
from laaciq.models.experts import SplitExperts, same_tokens, split_experts
from laaciq.models.plain_weights import want_plain_weights
from laaciq.models.safetensors_files import tensor_headers
from laaciq.options import MeasureOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.planning.screening import screen_profile
from laaciq.profiling.activations import prepare_whole
from laaciq.profiling.profile import profile_model
from laaciq.profiling.routing import language_routings
from laaciq.quantization import Calibration, quantize_matrix
from laaciq.quantization.blockwise import BlockStream
from laaciq.quantization.checkpoint import read_plan
from laaciq.quantization.model import quantize_layers
from laaciq.report.profile_plots import profile_figures
from laaciq.report.profile_report import profile_html
from laaciq.scoring.likelihood import target_losses
from laaciq.scoring.sequences import prepare_all
from laaciq.trials.quantized_copy import copy_of
from tests.families import FAMILIES, save_family

MIXTURES = [name for name, family in FAMILIES.items() if family.experts]
OPTIONS = MeasureOptions(served_bound=100.0)
FEW = {"languages": ["eng", "swa"], "served_bound": 100.0, "group_size": 16}
TOKENS = torch.arange(3, 43).reshape(2, 20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_family("Qwen3-MoE", tmp_path_factory.mktemp("model") / "model")


@pytest.fixture
def model(folder):
    return load(find_model(folder))


@pytest.fixture(scope="module")
def texts():
    return read_split("builtin").calibration.select(["eng", "swa", "hin"])


@pytest.mark.parametrize("name", MIXTURES)
def test_the_function_of_the_original_stays(name, tmp_path):
    path = save_family(name, tmp_path)
    ours = load(find_model(path))
    fused = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    assert any(isinstance(module, SplitExperts) for module in ours.module.modules())
    with torch.no_grad():
        expected, given = (m(TOKENS, use_cache=False).logits for m in (fused, ours.module))
    # The same products in float32; sums over experts may be taken in another order.
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)
    assert sum(p.numel() for p in fused.parameters()) == ours.anatomy.parameter_count()


def test_names_are_those_of_checkpoints_on_the_hub(folder, model):
    """transformers writes checkpoints with one tensor per expert and projection."""
    assert {name for name, _ in model.module.named_parameters()} == set(tensor_headers(model.folder))
    assert any(name.endswith("mlp.experts.3.gate_proj.weight") for name in tensor_headers(model.folder))


def plain_moments(model, texts, weights):
    """By hand: the inputs of every expert's projections, picked from the router's choice, one passage at a time."""
    block = model.module.model.layers[0]
    sums = [torch.zeros(32, 32, dtype=torch.float64) for _ in range(4)]
    counts = np.zeros((len(weights), 4))
    entering = {}
    block.mlp.register_forward_pre_hook(lambda module, inputs: entering.update(hidden=inputs[0].reshape(-1, 32)))
    for number, (code, weight) in enumerate(weights.items()):
        sequences = [s for passage in prepare_whole(model, texts[code], OPTIONS) for s in passage.sequences]
        tokens = sum(len(s.inputs) for s in sequences)
        for sequence in sequences:
            with torch.no_grad():
                model.module(torch.tensor([sequence.inputs]), use_cache=False)
            hidden = entering["hidden"]
            chosen = (hidden @ block.mlp.gate.weight.T).topk(2).indices
            for expert in range(4):
                rows = hidden[(chosen == expert).any(1)].double()
                sums[expert] += weight / tokens * rows.T @ rows
                counts[number, expert] += len(rows)
    return sums, counts


def test_second_moments_are_of_the_tokens_that_the_router_sends(model, texts):
    some = texts.at(range(4))
    weights = dict.fromkeys(some.languages, 1 / 3)
    layers = [linear for linear in model.anatomy.linears if linear.block == 0 and linear.expert is not None]
    stream = BlockStream(model, Calibration(None, some, OPTIONS), weights)
    moments = {name: seen.moments for name, seen in stream.second_moments(0, layers).items()}
    expected, _ = plain_moments(copy_of(model), some, weights)
    for layer in layers:
        if "down_proj" not in layer.name:
            # Sums in float32 against float64.
            torch.testing.assert_close(moments[layer.name].double(), expected[layer.expert], atol=1e-5, rtol=1e-4)


def test_routing_shares_are_part_of_the_profile(model, texts):
    some = texts.at(range(4))
    profile = profile_model(model, some, OPTIONS, outlier_kurtosis=50.0)
    for result in profile.languages:
        assert list(result.routing) == [f"model.layers.{block}.mlp.experts" for block in range(2)]
        assert all(sum(shares) == pytest.approx(1.0) for shares in result.routing.values())
    routings = language_routings(profile)
    assert [r.distance for r in routings] == sorted((r.distance for r in routings), reverse=True)
    assert all(0 < r.distance < 1 for r in routings)
    assert "routing" in profile_figures(profile)
    page = profile_html(profile, screen_profile(profile, bits=4), [])
    assert "Experts by language" in page and routings[0].most_used in page
    # Start tokens do not count in a profile, but in second moments: the shares are close to those of all tokens.
    _, counts = plain_moments(copy_of(model), some, dict.fromkeys(some.languages, 1 / 3))
    for row, result in zip(counts, profile.languages, strict=True):
        np.testing.assert_allclose(result.routing["model.layers.0.mlp.experts"], row / row.sum(), atol=0.05)


class PlainExperts(nn.Module):
    """The same experts as plain linear layers that read every token, with outputs that count where the router says so."""

    def __init__(self, experts):
        super().__init__()
        self.split = experts

    def forward(self, hidden, index, weights):
        total = torch.zeros_like(hidden)
        for number, expert in enumerate(self.split):
            scale = (weights * (index == number)).sum(-1, keepdim=True)
            output = expert.down_proj(nn.functional.silu(expert.gate_proj(hidden)) * expert.up_proj(hidden))
            total = total + scale * output
        return total


def test_losses_are_those_of_the_same_experts_as_plain_linear_layers(folder, tmp_path):
    """A checkpoint at 4 bits, its weights put into plain linear layers: the same predictions, and the size that is printed, to the byte."""
    result = laaciq.quantize(folder, out=tmp_path / "q", method="gptq", **FEW)
    headers = tensor_headers(find_model(tmp_path / "q"))
    widths = {"U8": 1, "F16": 2, "BF16": 2, "I32": 4, "U16": 2}
    on_disk = sum(int(np.prod(header.shape)) * widths[header.dtype] for header in headers.values())
    assert on_disk == result.total_bytes
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "q", dtype=torch.float32)
    plain = copy.deepcopy(loaded)
    for layer in plain.model.layers:
        layer.mlp.experts = PlainExperts(layer.mlp.experts)
    with torch.no_grad():
        given, expected = (m(TOKENS, use_cache=False).logits for m in (loaded, plain))
    torch.testing.assert_close(given, expected, atol=1e-4, rtol=1e-4)
    evaluation = laaciq.evaluate(tmp_path / "q", against=folder, languages=["eng"], served_bound=100.0, passages=3)
    assert evaluation.languages[0].degradation is not None
    # A router and two blocks of norms and attention are all that is not an expert's.
    experts = [tensor for tensor in read_plan(tmp_path / "q").tensors if ".experts." in tensor.name]
    assert len(experts) == 2 * 4 * 3 and all(tensor.bits == 4 for tensor in experts)


def test_at_4_bits_the_loss_of_a_language_is_that_of_plain_linear_layers(folder, model, tmp_path):
    """Every linear layer rounded by hand, the experts run as plain linear layers: the loss that an evaluation of the checkpoint reports."""
    laaciq.quantize(folder, out=tmp_path / "q", method="rtn", group_size=16)
    evaluation = laaciq.evaluate(tmp_path / "q", against=folder, languages=["swa"], served_bound=100.0, passages=3)
    plan = {tensor.name: tensor for tensor in read_plan(tmp_path / "q").tensors}
    for linear in model.anatomy.linears:
        weight = model.module.get_parameter(linear.name)
        with torch.no_grad():
            weight.copy_(quantize_matrix(weight, plan[linear.name]).dequantize(plan[linear.name]))
    for layer in model.module.model.layers:
        layer.mlp.experts = PlainExperts(layer.mlp.experts)
    passages = prepare_all(model, read_split("builtin").test["swa"].spread(3))
    with torch.inference_mode():
        losses = target_losses(model, [sequence for passage in passages for sequence in passage.sequences])
    # Sums in another order.
    assert evaluation.languages[0].quantized.nll_per_token == pytest.approx(losses.mean().item(), rel=1e-5)
    assert abs(evaluation.languages[0].loss.value) > 1e-4


def test_an_expert_with_few_tokens_is_rounded_to_nearest_and_that_is_printed(model, texts):
    """The first block's router sends everything to two experts; the others get no token."""
    with torch.no_grad():
        gate = model.module.model.layers[0].mlp.gate
        gate.weight.copy_(torch.tensor([1.0, 1.0, -1.0, -1.0])[:, None] * gate.weight.abs().mean())
        model.module.model.layers[0].post_attention_layernorm.weight.abs_()
        norm = model.module.model.layers[0].post_attention_layernorm
        norm.register_forward_hook(lambda module, inputs, output: output.abs())
    some = texts.select(["eng", "swa"])
    calibration = Calibration(None, some, OPTIONS)
    options = WeightOptions(method="gptq", bits=4, group_size=16)
    profile = profile_model(model, some.at(range(2)), OPTIONS, outlier_kurtosis=50.0)
    plan = make_plans(model.anatomy, options, profile).first
    with pytest.warns(UserWarning, match=r"2 of 8 experts were sent fewer calibration tokens.*6 of their projections"):
        layers = {tensor.name: matrix for tensor, matrix in quantize_layers(model, plan, calibration)}
    nearest = make_plans(model.anatomy, WeightOptions(method="mse", bits=4, group_size=16)).first
    by_hand = {tensor.name: matrix for tensor, matrix in quantize_layers(model, nearest)}
    for expert, alike in ((0, False), (2, True)):
        name = f"model.layers.0.mlp.experts.{expert}.gate_proj.weight"
        assert torch.equal(layers[name].codes, by_hand[name].codes) == alike
    # A language that sends no token there has no inputs, and methods that weigh inputs still work.
    assert not profile["eng"].input_mean_squares("model.layers.0.mlp.experts.2.gate_proj.weight").any()
    assert len(list(quantize_layers(model, make_plans(model.anatomy, WeightOptions(method="effective"), profile).first,
                                    Calibration(profile, some, OPTIONS)))) == len(plan.tensors)  # fmt: skip


def test_inputs_in_two_models_are_compared_token_by_token():
    """The quantized model sends other tokens to an expert: what the original did not send counts as it is."""
    original, inputs = torch.arange(6.0).reshape(3, 2), -torch.ones(3, 2)
    original._laaciq_tokens, inputs._laaciq_tokens = torch.tensor([0, 2, 5]), torch.tensor([2, 3, 5])
    assert same_tokens(original, inputs).tolist() == [[2.0, 3.0], [-1.0, -1.0], [4.0, 5.0]]
    assert same_tokens(None, inputs).tolist() == inputs.tolist()
    assert same_tokens(original, torch.zeros(3, 2)) is original


def test_gpt_oss_in_mxfp4_is_dequantized(tmp_path):
    """As it is published: blocks of 32 inputs share a power of two, and each weight is a float of 4 bits, two in a byte, low bits first."""
    folder = save_family("gpt-oss", tmp_path)
    tensors, random = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(0)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        shape = (experts, outputs, inputs // 32)
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=random)
        tensors[f"{name}_scales"] = torch.randint(120, 126, shape, dtype=torch.uint8, generator=random)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    model = load(find_model(folder))
    magnitudes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    values = torch.cat([magnitudes, -magnitudes])
    codes = tensors["model.layers.1.mlp.experts.gate_up_proj_blocks"][2].long()
    scales = 2.0 ** (tensors["model.layers.1.mlp.experts.gate_up_proj_scales"][2].float() - 127)
    weights = (values[torch.stack([codes % 16, codes // 16], -1).flatten(-2)] * scales[..., None]).flatten(1)
    expert = model.module.model.layers[1].mlp.experts[2]
    # Rows of gate and up alternate.
    assert torch.equal(expert.gate_proj.weight, weights[::2])
    assert torch.equal(expert.up_proj.weight, weights[1::2])
    assert {parameter.dtype for parameter in model.module.parameters()} == {torch.float32}


@pytest.mark.parametrize(("method", "asked"), [("mxfp4", True), ("fp8", True), ("gptq", False), (None, False)])
def test_small_floats_are_dequantized_on_every_device(method, asked):
    """Without a GPU transformers would do so anyway."""
    config = SimpleNamespace(quantization_config=method and {"quant_method": method})
    assert want_plain_weights(config) == asked
    assert bool(config.quantization_config and config.quantization_config.get("dequantize")) == asked


def test_experts_of_another_kind_stay_as_they_are():
    class Experts(nn.Module):
        has_gate, is_transposed, has_bias = True, False, False

        def __init__(self):
            super().__init__()
            self.gate_up_proj, self.down_proj = nn.Parameter(torch.ones(2, 4, 3)), nn.Parameter(torch.ones(2, 3, 2))
            self.norm = nn.Parameter(torch.ones(3))

    model = nn.ModuleDict({"experts": Experts()})
    split_experts(model)
    assert isinstance(model["experts"], Experts)
