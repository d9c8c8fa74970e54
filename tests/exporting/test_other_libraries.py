"""Exports loaded by the libraries whose formats they are in, in processes that never import laaciq; their logits against ours."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file

import laaciq
from laaciq.exporting.folding import folded_copy
from laaciq.exporting.source import read_source
from laaciq.models import find_model, load
from tests.tiny import save_tiny

WIDE = {"hidden_size": 64, "intermediate_size": 96}
# Name → model, how it is quantized, and how it is exported. Qwen2 and OPT have biases, GPT-2 is all Conv1D; the reference is a Llama.
CASES = {
    "reference": ("reference", {}, {}),
    "mixed": (("qwen2", WIDE), {"group_size": 32, "attention_bits": 8, "protect": ("0",)}, {}),
    "affine": (("opt", {"hidden_size": 64, "ffn_dim": 96}), {"bits": 3, "group_size": 48, "symmetric": False}, {}),
    "wider": (("qwen2", WIDE), {"bits": 6, "group_size": "tensor", "symmetric": False}, {}),
    "folded": (("qwen2", WIDE), {"embedding_bits": 4}, {"fold": True, "languages": ["eng"], "passages": 2}),
    "conv1d": (("gpt2", {"n_embd": 64, "n_inner": 96}), {"bits": 2, "group_size": 32}, {}),
}
# Of the largest logit. The weights are the same numbers, computed with in float32: sums of products in another order differ in its last
# place, 6e-8, times what twelve blocks make of that.
TOLERANCE = 1e-5
COMPRESSED = """
import torch
from transformers import AutoModelForCausalLM

def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
"""
# GPTQModel wants more cores than a small machine has, and float16 to load; then it computes in what it is cast to.
GPTQ = """
import os
os.cpu_count = lambda: 8
import torch
from gptqmodel import BACKEND, GPTQModel

def load(folder):
    model = GPTQModel.load(folder, device="cpu", backend=BACKEND.GPTQ_TORCH, dtype=torch.float16).model.float()
    assert any(hasattr(layer, "qweight") for layer in model.modules())
    return model
"""
ANSWER = """
import json, sys
from safetensors.torch import save_file

found = {}
for name, folder in json.loads(sys.argv[1]).items():
    with torch.inference_mode():
        found[name] = load(folder)(torch.arange(5, 37)[None]).logits.float().contiguous()
assert "laaciq" not in sys.modules
save_file(found, sys.argv[2])
"""


def exported_logits(format, library, names, root):
    """Of every case: what the library computes, and what we do."""
    folders, ours = {}, {}
    for name in names:
        source, quantizing, exporting = CASES[name]
        model = source if isinstance(source, str) else save_tiny(source[0], root / name / "model", **source[1])
        laaciq.quantize(model, out=root / name / "q", method="rtn", **quantizing)
        options = exporting | ({"against": model, "served_bound": 100.0} if exporting else {})
        result = laaciq.export(root / name / "q", format=format, out=root / name / "out", **options)
        checkpoint = read_source(root / name / "q")
        module = folded_copy(load(find_model(model), device="cpu"), checkpoint, result.folded).module
        folders[name] = str(root / name / "out")
        with torch.inference_mode():
            ours[name] = module(torch.arange(5, 37)[None]).logits
    # Isolated from our path. Compiling each layer's product would take most of the time, and change nothing.
    words = [sys.executable, "-I", "-c", library + ANSWER, json.dumps(folders), str(root / "theirs")]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=os.environ | {"TORCHDYNAMO_DISABLE": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return load_file(root / "theirs"), ours


def require_same(theirs, ours, names):
    assert set(theirs) == set(ours) == set(names)
    for name in names:
        torch.testing.assert_close(theirs[name], ours[name], rtol=0, atol=TOLERANCE * float(ours[name].abs().max()))


@pytest.mark.skipif(find_spec("compressed_tensors") is None, reason="compressed-tensors is not installed")
def test_transformers_with_compressed_tensors_computes_our_logits(tmp_path):
    names = ["reference", "mixed", "affine", "wider", "folded"]
    theirs, ours = exported_logits("compressed-tensors", COMPRESSED, names, tmp_path)
    require_same(theirs, ours, names)


@pytest.mark.skipif(find_spec("gptqmodel") is None, reason="GPTQModel is not installed")
def test_gptqmodel_computes_our_logits(tmp_path):
    names = list(CASES)
    theirs, ours = exported_logits("gptq", GPTQ, names, tmp_path)
    require_same(theirs, ours, names)


def test_the_tolerance_would_tell():
    """Scales of one layer off by half of bfloat16's last place, as readers may round them, are seen."""
    module = load(find_model("reference"), device="cpu").module
    ids = torch.arange(5, 37)[None]
    with torch.inference_mode():
        before = module(ids).logits
        module.model.layers[0].mlp.up_proj.weight.mul_(1 + 2**-9)
        after = module(ids).logits
    assert (after - before).abs().max() > 10 * TOLERANCE * before.abs().max()
