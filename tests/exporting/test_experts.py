"""Mixtures of experts and multimodal models in other libraries' formats: their names on the hub, and the same weights when read back."""

import json

import pytest
import torch

import laaciq
from laaciq.exporting.runtime_rules import check_rules
from laaciq.models import find_model, load
from laaciq.models.safetensors_files import tensor_headers
from laaciq.planning.runtimes import RUNTIMES, StoredLayer
from laaciq.quantization import apply_checkpoint
from tests.families import save_family

WIDE = {"hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 64, "head_dim": 16}
EXPERTS = {
    "Qwen3-MoE": ("model.layers.1.mlp.experts.3.gate_proj", "model.layers.1.mlp.gate"),
    "Mixtral": ("model.layers.1.block_sparse_moe.experts.3.w1", "model.layers.1.block_sparse_moe.gate"),
}


@pytest.mark.parametrize("name", EXPERTS)
@pytest.mark.parametrize("format", ["compressed-tensors", "gptq"])
def test_experts_have_their_names_on_the_hub_and_read_back_alike(name, format, tmp_path):
    model = save_family(name, tmp_path / "model", **WIDE)
    laaciq.quantize(model, out=tmp_path / "q", method="rtn", group_size=32)
    result = laaciq.export(tmp_path / "q", format=format, out=tmp_path / "out")
    assert sum(result.layouts.values()) == 2 * (4 + 4 * 3)
    expert, router = EXPERTS[name]
    headers = tensor_headers(find_model(tmp_path / "out"))
    packed = {"compressed-tensors": "weight_packed", "gptq": "qweight"}[format]
    assert {f"{expert}.{packed}", f"{router}.weight"} <= headers.keys()
    # Readers are told that it is not quantized; GPTQ's names are patterns.
    assert router in (tmp_path / "out/config.json").read_text().replace("\\", "")
    ours, theirs = load(find_model(model)), load(find_model(tmp_path / "out"))
    apply_checkpoint(ours, tmp_path / "q")
    weights = dict(theirs.module.named_parameters())
    for parameter_name, parameter in ours.module.named_parameters():
        # Scales are float16 in both.
        torch.testing.assert_close(weights[parameter_name].float(), parameter, atol=2e-3, rtol=2e-3)


def test_vision_stays_as_it_is_and_is_listed(tmp_path):
    model = save_family("Gemma 3 with vision", tmp_path / "model")
    (model / "preprocessor_config.json").write_text('{"image_size": 28}')
    laaciq.quantize(model, out=tmp_path / "q", method="rtn", group_size=32)
    laaciq.export(tmp_path / "q", format="compressed-tensors", out=tmp_path / "out")
    ignored = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]["ignore"]
    assert any("vision_tower" in layer for layer in ignored)
    assert not any("language_model" in layer for layer in ignored)
    for folder in ("q", "out"):
        assert json.loads((tmp_path / folder / "preprocessor_config.json").read_text()) == {"image_size": 28}


def test_vllm_on_a_cpu_takes_experts_in_16_bits_only(tmp_path):
    """It has no kernel for them on most CPUs, and for GPTQ looks for one anyway. Its patterns name the experts as vLLM does, as one layer."""
    model = save_family("Mixtral", tmp_path / "model", **WIDE)
    laaciq.quantize(model, out=tmp_path / "q", method="rtn", group_size=32)
    with pytest.raises(
        laaciq.LaaciqError, match=r"CPU does not load this: experts in 16 bits \(broken by .*experts\.0"
    ):
        laaciq.export(tmp_path / "q", format="gptq", out=tmp_path / "out", runtime="vllm-cpu")
    with pytest.raises(laaciq.LaaciqError, match="too small: the smallest plan takes"):
        laaciq.plan(
            model,
            runtime="vllm-cpu",
            budget=5.0,
            languages=["eng", "swa"],
            out=tmp_path / "plan.json",
            served_bound=100.0,
        )
    plan = json.loads((tmp_path / "q/plan.json").read_text())
    for tensor in plan["tensors"]:
        tensor["bits"] = 16 if ".experts." in tensor["name"] else 4
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    laaciq.quantize(model, out=tmp_path / "attention", plan=tmp_path / "plan.json")
    laaciq.export(tmp_path / "attention", format="compressed-tensors", out=tmp_path / "ct", runtime="vllm-cpu")
    with pytest.raises(
        laaciq.LaaciqError, match=r"CPU does not load this: no experts in gptq \(broken by .*experts\.0"
    ):
        laaciq.export(tmp_path / "attention", format="gptq", out=tmp_path / "out", runtime="vllm-cpu")
    laaciq.export(tmp_path / "attention", format="gptq", out=tmp_path / "out", runtime="vllm")
    dynamic = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]["dynamic"]
    assert r"-:^model\.layers\.1\.block_sparse_moe\.experts$" in dynamic


def test_vllm_takes_the_experts_of_a_block_alike():
    names = [f"layers.0.mlp.experts.{expert}.{part}_proj" for expert in range(3) for part in ("gate", "down")]
    layers = {name: StoredLayer((64, 64), 4, 64, True) for name in names}
    assert not any(rule.broken_by for rule in check_rules(RUNTIMES["vllm"], "compressed-tensors", layers, []))
    layers[names[-1]] = StoredLayer((64, 64), 8, 64, True)
    assert any(rule.broken_by for rule in check_rules(RUNTIMES["vllm"], "compressed-tensors", layers, []))
