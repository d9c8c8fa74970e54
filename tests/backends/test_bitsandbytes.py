import pytest
import torch
from transformers import AutoModelForCausalLM

from laaciq.backends import bitsandbytes
from tests.backends.agreement import bits_per_weight, logit_difference, logits, relative_difference, with_weights

bnb = pytest.importorskip("bitsandbytes")

# Dettmers et al. (2023), appendix E: the code of NF4.
NF4 = torch.tensor(
    [-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0, 0.0795803, 0.1609302, 0.24611230,
     0.33791524, 0.44070983, 0.56261700, 0.72295684, 1.0]
)  # fmt: skip


def nearest_nf4(matrix):
    """In blocks of 64, scaled by their maxima."""
    blocks = matrix.float().reshape(-1, 64)
    maxima = blocks.abs().amax(1, keepdim=True)
    codes = (blocks / maxima)[..., None].sub(NF4).abs().argmin(-1)
    return (NF4[codes] * maxima).reshape(matrix.shape)


def error(weight, original):
    return float((weight.float() - original.float()).norm() / original.float().norm())


@pytest.fixture
def plain_arithmetic(monkeypatch):
    """The library as on most CPUs. On one with AVX512-BF16 it rounds maxima and inputs to bfloat16, and takes no rows shorter than a block."""
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: False)


def test_weights_are_nf4_of_the_original_whatever_the_library_does_later(two_blocks, tokenizer, texts, monkeypatch):
    """On a CPU with AVX512-BF16 the library repacks its codes in place in the first forward pass: whoever reads them later gets other
    weights. Here it takes every CPU for such a one; what it then computes may be nonsense, what it does to the codes is the same."""
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)
    result, library_model = bitsandbytes.quantize_copy(two_blocks, 4, "cpu")
    library_model.eval()(**tokenizer(texts[0], return_tensors="pt"))
    for name, weight in result.weights.items():
        expected = nearest_nf4(two_blocks.get_parameter(name))
        # Maxima are rounded to 8 bits and weights to bfloat16; a value between two codes may go to either.
        assert error(weight, expected) < 0.015
        layer = library_model.get_submodule(name.removesuffix(".weight"))
        read_late = bnb.functional.dequantize_4bit(layer.weight.data.reshape(-1, 1), layer.weight.quant_state)
        assert error(read_late.reshape(weight.shape), expected) > 0.5


def test_saved_after_use_it_is_what_it_was(two_blocks, tokenizer, texts, tmp_path):
    result = bitsandbytes.quantize(two_blocks, tokenizer, texts, bits=4)
    ours = with_weights(two_blocks, result)
    before = logits(ours, tokenizer, texts[0])
    ours.save_pretrained(tmp_path / "nf4")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "nf4")
    assert relative_difference(logits(again, tokenizer, texts[0]), before) == 0
    for name, weight in result.weights.items():
        assert torch.equal(again.get_parameter(name), weight)
        assert error(weight, two_blocks.get_parameter(name)) < 0.15


@pytest.mark.usefixtures("plain_arithmetic")
def test_nf4_computes_what_the_library_computes(two_blocks, tokenizer, texts):
    result, library_model = bitsandbytes.quantize_copy(two_blocks, 4, "cpu")
    assert logit_difference(two_blocks, result, library_model, tokenizer, texts[0]) < 1e-3
    # 8 bits per block of 64, a float32 per 256 blocks, and one number per matrix.
    assert bits_per_weight(result) == pytest.approx(4.127, abs=1e-3)
    assert result.left_alone == ["model.embed_tokens.weight"]


def test_int8_is_rows_by_their_maxima(two_blocks, tokenizer, texts):
    result, library_model = bitsandbytes.quantize_copy(two_blocks, 8, "cpu")
    # The library rounds inputs to 8 bits as well.
    assert logit_difference(two_blocks, result, library_model, tokenizer, texts[0]) < 0.05
    for name, weight in result.weights.items():
        original = two_blocks.get_parameter(name).float()
        step = original.abs().amax(1, keepdim=True) / 127
        # Half a step, and the 8 bits of bfloat16.
        assert ((weight.float() - original).abs() <= 0.5 * step + original.abs() / 128).all()
        assert result.bits[name] == 8 * weight.numel() + 32 * len(weight)


@pytest.mark.usefixtures("plain_arithmetic")
def test_the_layers_of_gpt2_are_quantized_too(gpt2, texts):
    model, tokenizer = gpt2
    result, library_model = bitsandbytes.quantize_copy(model, 4, "cpu")
    # Its tokens are short, and its positions few.
    assert logit_difference(model, result, library_model, tokenizer, texts[0][:60]) < 1e-3
    assert len(result.weights) == 8
    assert not [name for name in result.left_alone if ".h." in name]
