"""Exports of the reference model, served by `vllm serve` on a CPU and asked over HTTP, against our own checkpoint in float32."""

import json

import numpy as np
import pytest
from transformers import AutoConfig

import laaciq
from tests.exporting.runtimes.passages import NEW_TOKENS, Computed, compute, half, passages, until
from tests.exporting.runtimes.vllm_server import Refused, serve


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


REFUSED = {
    "compressed-tensors, 8 bits": ({"bits": 8}, "not supported by CPUWNA16"),
    "compressed-tensors, 3 bits": ({"bits": 3}, "not supported by CPUWNA16"),
    "gptq, affine": ({"bits": 4, "symmetric": False}, "Unsupported quantization config"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_we_refuse_vllm_refuses(name, tmp_path, compared):
    options, reason = REFUSED[name]
    export_format = name.partition(",")[0]
    laaciq.quantize("reference", out=tmp_path / "q", method="rtn", **options)
    with pytest.raises(laaciq.LaaciqError, match="vLLM on a CPU does not load this"):
        laaciq.export(tmp_path / "q", format=export_format, out=tmp_path / "out", runtime="vllm-cpu")
    laaciq.export(tmp_path / "q", format=export_format, out=tmp_path / "out")
    with pytest.raises(Refused, match=reason), serve(tmp_path / "out", tmp_path / "server.log"):
        pass
    compared.append(f"vLLM, {name}: refused, {reason}")
