"""GGUF exports in llama.cpp itself, the build in npm's node-llama-cpp, against our own checkpoint in float32."""

import json
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import laaciq
from laaciq.exporting.gguf import FILE, write_gguf
from tests.exporting.families import save_family
from tests.exporting.pieces import sentencepiece_tokenizer
from tests.exporting.runtimes.passages import NEW_TOKENS, compute, half, passages
from tests.exporting.test_gguf import TEXTS, save_qwen3
from tests.tiny import save_tiny

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / ".venv-llamacpp/node_modules/node-llama-cpp/dist/index.js"
IDS = list(range(5, 105))
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


SAVED = {
    "llama": lambda folder: save_tiny("llama", folder),
    "llama 3.1": lambda folder: save_tiny(
        "llama", folder, rope_parameters=LLAMA3 | {"original_max_position_embeddings": 32}
    ),
    "qwen2": lambda folder: save_tiny("qwen2", folder),
    "qwen3": save_qwen3,
    **{name: partial(save_family, name) for name in ("mistral", "gemma3_text", "phi3", "cohere2", "qwen3_moe")},
}


def ask(file, *, texts=(), sequences=(), begun=()):
    if not LIBRARY.exists():
        raise FileNotFoundError(f"{LIBRARY} does not exist: 'make test-runtimes' sets it up")
    asked = {"model": str(file), "texts": texts, "sequences": sequences, "begun": begun, "tokens": NEW_TOKENS}
    words = ["node", str(Path(__file__).with_name("llama_cpp.mjs")), str(LIBRARY)]
    done = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@torch.inference_mode()
def our_logprobs(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    scores = model(torch.tensor([IDS])).logits[0].log_softmax(-1)
    return scores[:-1].gather(1, torch.tensor(IDS[1:])[:, None])[:, 0].numpy()


def gap(theirs, ours):
    """Mean |Δ| of log-probabilities, relative to how much they vary from token to token."""
    return float(np.abs(np.array(theirs) - ours).mean() / ours.std())


@pytest.mark.parametrize("name", SAVED)
def test_llama_cpp_computes_the_same(name, tmp_path, compared):
    laaciq.quantize(SAVED[name](tmp_path / "model"), out=tmp_path / "q", method="rtn", group_size=32)
    laaciq.export(tmp_path / "q", format="gguf", out=tmp_path / "out", runtime="llama.cpp")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "q")
    answer = ask(tmp_path / "out" / FILE, texts=TEXTS, sequences=[IDS])
    assert answer["ids"] == [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    found = gap(answer["logprobs"][0], our_logprobs(tmp_path / "q"))
    compared.append(f"llama.cpp {answer['release']}, {name}: relative |Δ| {found:.4f}")
    # llama.cpp rounds what enters a product with blocks to 8 bits, and keys and values to float16. Inputs rounded to 8 bits may also send a
    # token to another expert.
    assert found < (0.1 if name == "qwen3_moe" else 0.03)


def test_experts_in_16_bits_are_stacked_for_llama_cpp(tmp_path, compared):
    folder = save_family("qwen3_moe", tmp_path / "model")
    write_gguf(folder, tmp_path / "out")
    answer = ask(tmp_path / "out" / FILE, sequences=[IDS])
    found = gap(answer["logprobs"][0], our_logprobs(folder))
    compared.append(f"llama.cpp {answer['release']}, qwen3_moe in 16 bits: relative |Δ| {found:.4f}")
    assert found < 0.01


@pytest.mark.parametrize("prefix", [True, False])
def test_llama_cpp_finds_the_pieces_of_sentencepiece(prefix, tmp_path):
    tokenizer = sentencepiece_tokenizer(prefix=prefix)
    folder = save_tiny("llama", tmp_path / "model", vocab_size=len(tokenizer))
    tokenizer.save_pretrained(folder)
    write_gguf(folder, tmp_path / "out")
    theirs = ask(tmp_path / "out" / FILE, texts=TEXTS)["ids"]
    assert theirs == [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]


CASES = {
    "4 bits, symmetric, groups of 32": {"method": "rtn", "group_size": 32},
    "planned, --runtime llama.cpp --budget 5": {
        "method": "planned", "runtime": "llama.cpp", "budget": 5.0, "languages": ["eng", "swa"], "tune": 0,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_llama_cpp_continues_our_text(name, tmp_path, compared):
    laaciq.quantize("reference", out=tmp_path / "q", **CASES[name])
    exported = laaciq.export(tmp_path / "q", format="gguf", out=tmp_path / "out", runtime="llama.cpp")
    assert not exported.folded
    assert not exported.widened or "planned" in name
    ours, original = compute(tmp_path / "q"), compute("reference")
    answer = ask(tmp_path / "out" / FILE, texts=passages(), sequences=ours.ids, begun=[*map(half, ours.ids)])
    assert [ids[1:] for ids in ours.ids] == answer["ids"]
    moved, cost = (
        float(np.abs(np.concatenate(a) - np.concatenate(ours.logprobs)).mean())
        for a in (answer["logprobs"], original.logprobs)
    )
    same = sum(a == b for a, b in zip(answer["continuations"], ours.continuations, strict=True))
    compared.append(
        f"llama.cpp {answer['release']}, {name}: {', '.join(f'{count} {kind}' for kind, count in exported.layouts.items())}; "
        f"{len(ours.ids)} passages: mean |Δ| {moved:.4f} nats (quantizing: {cost:.4f}), same text in {same}"
    )
    assert moved < 0.2 * cost
    assert same > len(ours.ids) / 2
