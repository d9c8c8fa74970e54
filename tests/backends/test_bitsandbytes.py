import copy

import pytest
import torch
from transformers import AutoModelForCausalLM

from laaciq.backends import bitsandbytes
from laaciq.backends.contract import logit_difference

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
    found, library_model = bitsandbytes._quantize(two_blocks, 4, "cpu", double=False)
    library_model.eval()(**tokenizer(texts[0], return_tensors="pt"))
    for name, weight in found.weights.items():
        expected = nearest_nf4(two_blocks.get_parameter(name))
        # A value between two codes may go to either; bfloat16 has 8 bits.
        assert error(weight, expected) < 0.01
        layer = library_model.get_submodule(name.removesuffix(".weight"))
        read_late = bnb.functional.dequantize_4bit(layer.weight.data.reshape(-1, 1), layer.weight.quant_state)
        assert error(read_late.reshape(weight.shape), expected) > 0.5


def test_saved_after_use_it_is_what_it_was(two_blocks, tokenizer, texts, tmp_path):
    found = bitsandbytes.quantize(two_blocks, tokenizer, texts, bits=4)
    ours = copy.deepcopy(two_blocks)
    found.put_into(ours)
    before = logit_difference(ours, two_blocks, tokenizer, texts[0])
    ours.save_pretrained(tmp_path / "nf4")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "nf4")
    assert logit_difference(again, two_blocks, tokenizer, texts[0]) == before
    for name, weight in found.weights.items():
        assert torch.equal(again.get_parameter(name), weight)
        assert error(weight, two_blocks.get_parameter(name)) < 0.15


@pytest.mark.usefixtures("plain_arithmetic")
@pytest.mark.parametrize("double", [True, False])
def test_nf4_computes_what_the_library_computes(two_blocks, tokenizer, texts, double):
    found, difference = bitsandbytes.check(two_blocks, tokenizer, texts, bits=4, double=double)
    assert difference < 1e-3
    # A float32 a block of 64; or 8 bits a block, a float32 for 256 of them, and one number a matrix.
    assert found.bits_per_weight == pytest.approx(4.127 if double else 4.5, abs=1e-3)
    assert found.left_alone == ["model.embed_tokens.weight"]


def test_int8_is_rows_by_their_maxima(two_blocks, tokenizer, texts):
    found, difference = bitsandbytes.check(two_blocks, tokenizer, texts, bits=8)
    # The library rounds inputs to 8 bits as well.
    assert difference < 0.05
    for name, weight in found.weights.items():
        original = two_blocks.get_parameter(name).float()
        step = original.abs().amax(1, keepdim=True) / 127
        # Half a step, and the 8 bits of bfloat16.
        assert ((weight.float() - original).abs() <= 0.5 * step + original.abs() / 128).all()
        assert found.bits[name] == 8 * weight.numel() + 32 * len(weight)


@pytest.mark.usefixtures("plain_arithmetic")
def test_the_layers_of_gpt2_are_quantized_too(gpt2, texts):
    model, tokenizer = gpt2
    # Its tokens are short, and its positions few.
    found, difference = bitsandbytes.check(model, tokenizer, [texts[0][:60]], bits=4)
    assert difference < 1e-3
    assert len(found.weights) == 8
    assert not [name for name in found.left_alone if ".h." in name]
