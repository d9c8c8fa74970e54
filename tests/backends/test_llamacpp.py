import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from laaciq.backends import llamacpp
from laaciq.backends.contract import token_sequences
from laaciq.errors import BadOption
from tests.backends.agreement import logits, relative_difference, with_weights
from tests.backends.llama_logits import llama_logits
from tests.tiny import save_tiny

pytest.importorskip("gguf")
pytest.importorskip("llama_cpp")

# ggml's blocks of 256: 4 bits, 8 pairs of 6 bits and two float16; 3 bits, 16 of 6 and one; and so on. Blocks of 32 with one float16.
SIZES = {"Q2_K": 2.625, "Q3_K": 3.4375, "Q4_K": 4.5, "Q5_K": 5.5, "Q6_K": 6.5625, "Q4_0": 4.5, "Q5_0": 5.5, "Q8_0": 8.5}


def sizes(result):
    return {name: result.bits[name] / weight.numel() for name, weight in result.weights.items()}


def quantized(folder, model, tokenizer, texts, bits, types, probe):
    """The result, and how far it is from llama.cpp's logits in float32. They are of the weights that llama.cpp dequantizes itself: with
    quantized ones it would also round the inputs of every layer to 8 bits."""
    import llama_cpp

    result = llamacpp.quantize_into(folder, model, tokenizer, texts, bits=bits, device="cpu", types=types)
    target = folder / "dequantized.gguf"
    llamacpp.quantize_file(folder / "quantized.gguf", target, llama_cpp.LLAMA_FTYPE_ALL_F32, {})
    theirs = llama_logits(target, tokenizer(probe)["input_ids"])
    ours = logits(with_weights(copy.deepcopy(model).float(), result), tokenizer, probe)[0]
    return result, relative_difference(ours, theirs)


@pytest.mark.parametrize(
    ("bits", "types", "importance"),
    [
        (4, llamacpp.K_QUANTS, True),
        (3, llamacpp.K_QUANTS, True),
        (4, llamacpp.K_QUANTS, False),
        (4, llamacpp.PLAIN, False),
    ],
)
def test_it_computes_what_llama_cpp_computes(two_blocks, tokenizer, texts, bits, types, importance, capfd, tmp_path):
    before = copy.deepcopy(two_blocks.state_dict())
    read = texts if importance else []
    result, difference = quantized(tmp_path, two_blocks, tokenizer, read, bits, types, texts[0])
    # Both in float32.
    assert difference < 1e-4
    assert ("no text read" in result.settings) == (not importance)
    assert result.left_alone == []
    assert set(sizes(result).values()) <= set(SIZES.values())
    assert all(torch.equal(value, before[name]) for name, value in two_blocks.state_dict().items())
    assert capfd.readouterr() == ("", "")


def test_q4_k_m_is_a_mixture(two_blocks, tokenizer, texts):
    by_name = sizes(llamacpp.quantize(two_blocks, tokenizer, texts, bits=4))
    assert by_name["model.embed_tokens.weight"] == SIZES["Q6_K"]
    assert by_name["model.layers.0.self_attn.q_proj.weight"] == SIZES["Q4_K"]
    # The last blocks are among those that get more bits.
    assert by_name["model.layers.1.mlp.down_proj.weight"] == SIZES["Q6_K"]


def test_importance_lowers_the_error_that_the_texts_see(two_blocks, tokenizer, texts):
    name = "model.layers.0.mlp.up_proj.weight"
    means = llamacpp.mean_squares(two_blocks, token_sequences(two_blocks, tokenizer, texts), "cpu")
    original = two_blocks.get_parameter(name).float()

    def weighted_error(read):
        weights = llamacpp.quantize(two_blocks, tokenizer, read, bits=3).weights
        return float(((weights[name] - original).square() * means[name.removesuffix(".weight")]).sum())

    assert weighted_error(texts) < 0.95 * weighted_error([])


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "gemma3"])
def test_other_architectures_and_rows_that_256_does_not_divide(architecture, tmp_path, texts):
    # llama.cpp has Gemma's windows built in: every sixth block is global.
    options = {"sliding_window_pattern": 6} if architecture == "gemma3" else {}
    folder = save_tiny(architecture, tmp_path / "model", dtype=torch.bfloat16, **options)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    short = [text[:80] for text in texts]
    quantized_folder = tmp_path / "quantized"
    quantized_folder.mkdir()
    result, difference = quantized(quantized_folder, model, tokenizer, short, 4, llamacpp.K_QUANTS, short[0])
    # Gemma's embeddings are multiplied by a number that transformers rounds to 16 bits.
    assert difference < (1e-3 if architecture == "gemma3" else 1e-4)
    assert "Q4_K," not in result.settings
    assert set(sizes(result).values()) == {SIZES["Q5_0"], SIZES["Q8_0"]}


def test_what_it_cannot_take_is_said(gpt2, two_blocks, tokenizer):
    with pytest.raises(BadOption, match="models here, not gpt2"):
        llamacpp.quantize(*gpt2, [], bits=4)
    with pytest.raises(BadOption, match=r"4 bits \(Q4_K_M\).* not 7"):
        llamacpp.quantize(two_blocks, tokenizer, [], bits=7)
