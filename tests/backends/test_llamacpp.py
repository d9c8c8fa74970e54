import copy
from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from laaciq.backends import llamacpp
from laaciq.errors import BadOption
from tests.tiny import save_tiny

pytest.importorskip("gguf")
pytest.importorskip("llama_cpp")

# ggml's blocks of 256: 4 bits, 8 pairs of 6 bits and two float16; 3 bits, 16 of 6 and one; and so on. Blocks of 32 with one float16.
SIZES = {"Q2_K": 2.625, "Q3_K": 3.4375, "Q4_K": 4.5, "Q5_K": 5.5, "Q6_K": 6.5625, "Q4_0": 4.5, "Q5_0": 5.5, "Q8_0": 8.5}


def sizes(found):
    return {name: found.bits[name] / weight.numel() for name, weight in found.weights.items()}


@pytest.mark.parametrize(
    ("bits", "options"),
    [(4, {}), (3, {}), (4, {"importance": False}), (4, {"importance": False, "types": llamacpp.PLAIN})],
)
def test_it_computes_what_llama_cpp_computes(two_blocks, tokenizer, texts, bits, options, capfd):
    before = copy.deepcopy(two_blocks.state_dict())
    found, difference = llamacpp.check(two_blocks, tokenizer, texts, bits=bits, **options)
    # Both in float32.
    assert difference < 1e-4
    assert found.left_alone == []
    assert set(sizes(found).values()) <= set(SIZES.values())
    assert all(torch.equal(value, before[name]) for name, value in two_blocks.state_dict().items())
    assert capfd.readouterr() == ("", "")


def test_q4_k_m_is_a_mixture(two_blocks, tokenizer, texts):
    found = sizes(llamacpp.quantize(two_blocks, tokenizer, texts, bits=4))
    assert found["model.embed_tokens.weight"] == SIZES["Q6_K"]
    assert found["model.layers.0.self_attn.q_proj.weight"] == SIZES["Q4_K"]
    # Of few blocks the last one is among those that get more.
    assert found["model.layers.1.mlp.down_proj.weight"] == SIZES["Q6_K"]


def test_importance_lowers_the_error_that_the_texts_see(two_blocks, tokenizer, texts):
    name = "model.layers.0.mlp.up_proj.weight"
    means, tokens = llamacpp._mean_squares(two_blocks, tokenizer, texts, "cpu", 2048)
    assert tokens == sum(len(tokenizer(text)["input_ids"]) for text in texts)
    original = two_blocks.get_parameter(name).float()

    def seen(found):
        return float(((found.weights[name] - original).square() * means[name.removesuffix(".weight")]).sum())

    quantize = partial(llamacpp.quantize, two_blocks, tokenizer, texts, bits=3)
    assert seen(quantize()) < 0.95 * seen(quantize(importance=False))


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "gemma3"])
def test_other_architectures_and_rows_that_256_does_not_divide(architecture, tmp_path, texts):
    # llama.cpp knows Gemma's windows by heart: every sixth block is global.
    options = {"sliding_window_pattern": 6} if architecture == "gemma3" else {}
    folder = save_tiny(architecture, tmp_path / "model", dtype=torch.bfloat16, **options)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    found, difference = llamacpp.check(model, tokenizer, [text[:80] for text in texts], bits=4)
    # Gemma's embeddings are multiplied by a number that transformers rounds to 16 bits.
    assert difference < (1e-3 if architecture == "gemma3" else 1e-4)
    assert "Q4_K" not in found.settings
    assert set(sizes(found).values()) == {SIZES["Q5_0"], SIZES["Q8_0"]}


def test_what_it_cannot_take_is_said(gpt2, two_blocks, tokenizer):
    with pytest.raises(BadOption, match="models here, not gpt2"):
        llamacpp.quantize(*gpt2, [], bits=4)
    with pytest.raises(BadOption, match=r"4 bits \(Q4_K_M\).* not 7"):
        llamacpp.quantize(two_blocks, tokenizer, [], bits=7)
