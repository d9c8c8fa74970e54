"""Exports of the reference model, served by `vllm serve` on a CPU and asked over HTTP, against our own checkpoint in float32."""

import json

import numpy as np
import pytest
from transformers import AutoConfig

import laaciq
from tests.exporting.runtimes.passages import NEW_TOKENS, Computed, compute, half, passages, until
from tests.exporting.runtimes.vllm_server import Refused, serve
from tests.families import save_family


def served(folder, root) -> Computed:
    computed, end = Computed([], [], []), AutoConfig.from_pretrained(folder).eos_token_id
    with serve(folder, root / "server.log") as server:
        for text in passages():
            ids, logprobs = server.score(text)
            computed.ids.append(ids)
            computed.logprobs.append(logprobs)
            computed.continuations.append(until(end, server.continue_greedily(half(ids), NEW_TOKENS)))
    return computed


def difference(theirs, ours):
    """Mean |Δ| of log-probabilities of tokens, and the number of passages that both continue with the same text."""
    assert theirs.ids == ours.ids
    gap = np.abs(np.concatenate(theirs.logprobs) - np.concatenate(ours.logprobs))
    same = sum(a == b for a, b in zip(theirs.continuations, ours.continuations, strict=True))
    return float(gap.mean()), same


def shown(name, gap, same, ours):
    tokens = sum(map(len, ours.logprobs))
    return f"{name:42} {len(ours.ids)} passages, {tokens} tokens: mean |Δ| {gap:.4f} nats, same text in {same}"


@pytest.fixture(scope="module")
def noise(tmp_path_factory, compared):
    """What bfloat16 alone does: the original, unquantized, in vLLM against float32."""
    ours = compute("reference")
    gap, same = difference(served(laaciq.reference.path(), tmp_path_factory.mktemp("original")), ours)
    compared.append(shown("vLLM, the original in bfloat16", gap, same, ours))
    return gap


def mixed_groups(folder):
    """A plan with a block in 16 bits, a block in groups of 32 and all others in groups of 64."""
    laaciq.quantize("reference", out=folder / "plain", method="rtn", bits=4, protect=("0",), protect_bits=16)
    plan = json.loads((folder / "plain/plan.json").read_text())
    for tensor in plan["tensors"]:
        if ".layers.1." in tensor["name"]:
            tensor["group_size"] = 32
    (folder / "plan.json").write_text(json.dumps(plan))
    return {"plan": folder / "plan.json"}


CASES = {
    "compressed-tensors, symmetric": ("compressed-tensors", lambda folder: {"method": "rtn", "bits": 4}),
    "compressed-tensors, affine": (
        "compressed-tensors",
        lambda folder: {"method": "rtn", "bits": 4, "symmetric": False},
    ),
    "gptq, symmetric, mixed groups": ("gptq", mixed_groups),
    "planned, --runtime vllm-cpu --budget 5": (
        "compressed-tensors",
        lambda folder: {
            "method": "planned",
            "runtime": "vllm-cpu",
            "budget": 5.0,
            "languages": ["eng", "swa"],
            "tune": 0,
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_vllm_serves_our_numbers(name, noise, tmp_path, compared):
    export_format, quantizing = CASES[name]
    laaciq.quantize("reference", out=tmp_path / "q", **quantizing(tmp_path))
    laaciq.export(tmp_path / "q", format=export_format, out=tmp_path / "out", runtime="vllm-cpu")
    ours = compute(tmp_path / "q")
    gap, same = difference(served(tmp_path / "out", tmp_path), ours)
    compared.append(shown(f"vLLM, {name}", gap, same, ours))
    # bfloat16 also rounds the scales, by up to 2⁻⁹ of each. A wrong zero point or group would cost tens of times as much.
    assert gap < 1.5 * noise
    assert same > len(ours.ids) / 2


NO_EXPERTS = "No WNA16 MoE backend supports the deployment configuration"


def mixture(folder):
    """Wide enough for the kernels of vLLM."""
    wide = {"hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 64, "head_dim": 32}
    return save_family("Qwen3-MoE", folder, **wide, max_position_embeddings=512)


def test_vllm_serves_a_mixture_with_experts_in_16_bits(tmp_path, compared):
    """That is what --runtime vllm-cpu plans. Random weights: how far log-probabilities move is compared with how much they vary."""
    planned = {"method": "planned", "runtime": "vllm-cpu", "budget": 12.5, "tune": 0, "served_bound": 100.0}
    result = laaciq.quantize(mixture(tmp_path / "model"), out=tmp_path / "q", languages=["eng", "swa"], **planned)
    bits = {tensor.quantized: ".experts." in tensor.name for tensor in result.plans.first.tensors}
    assert bits == {True: False, False: True}
    symmetric = json.loads((tmp_path / "q/plan.json").read_text())
    for tensor in symmetric["tensors"]:
        tensor["symmetric"] = True
    (tmp_path / "plan.json").write_text(json.dumps(symmetric))
    laaciq.quantize(tmp_path / "model", out=tmp_path / "s", plan=tmp_path / "plan.json")
    laaciq.export(tmp_path / "s", format="compressed-tensors", out=tmp_path / "out", runtime="vllm-cpu")
    ours = compute(tmp_path / "s")
    gap, _ = difference(served(tmp_path / "out", tmp_path), ours)
    relative = gap / float(np.concatenate(ours.logprobs).std())
    compared.append(f"vLLM, compressed-tensors, Qwen3-MoE with experts in 16 bits: relative |Δ| {relative:.4f}")
    # bfloat16 has 8 bits, and may send a token to another expert.
    assert relative < 0.05
    with pytest.raises(laaciq.LaaciqError, match="no experts in gptq"):
        laaciq.export(tmp_path / "s", format="gptq", out=tmp_path / "gptq", runtime="vllm-cpu")
    laaciq.export(tmp_path / "s", format="gptq", out=tmp_path / "gptq")
    with pytest.raises(Refused, match=NO_EXPERTS), serve(tmp_path / "gptq", tmp_path / "gptq.log"):
        pass
    compared.append(f"vLLM, gptq, Qwen3-MoE with experts in 16 bits: refused, {NO_EXPERTS}")


REFUSED = {
    "compressed-tensors, 8 bits": ({"bits": 8}, "not supported by CPUWNA16"),
    "compressed-tensors, 3 bits": ({"bits": 3}, "not supported by CPUWNA16"),
    "gptq, affine": ({"bits": 4, "symmetric": False}, "Unsupported quantization config"),
    "compressed-tensors, quantized experts": ({"group_size": 32}, NO_EXPERTS),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_we_refuse_vllm_refuses(name, tmp_path, compared):
    options, reason = REFUSED[name]
    export_format = name.partition(",")[0]
    model = mixture(tmp_path / "model") if reason == NO_EXPERTS else "reference"
    laaciq.quantize(model, out=tmp_path / "q", method="rtn", **options)
    with pytest.raises(laaciq.LaaciqError, match="vLLM on a CPU does not load this"):
        laaciq.export(tmp_path / "q", format=export_format, out=tmp_path / "out", runtime="vllm-cpu")
    laaciq.export(tmp_path / "q", format=export_format, out=tmp_path / "out")
    with pytest.raises(Refused, match=reason), serve(tmp_path / "out", tmp_path / "server.log"):
        pass
    compared.append(f"vLLM, {name}: refused, {reason}")
