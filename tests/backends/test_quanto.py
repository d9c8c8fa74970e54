import copy

import pytest
import torch

from laaciq.backends import quanto
from tests.backends.agreement import bits_per_weight, logit_difference

pytest.importorskip("optimum.quanto")


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """Its extension would be compiled on first use."""
    monkeypatch.setattr("optimum.quanto.library.extensions.extension.load", lambda **_: pytest.fail("it compiles"))


def quantized(model, tokenizer, texts, bits):
    """The result, and how far it is from what the library computes."""
    with quanto.without_compiler():
        result, library_model = quanto.quantize_copy(model, bits, "cpu")
        return result, logit_difference(model, result, library_model, tokenizer, texts[0])


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_it_computes_what_the_library_computes(two_blocks, tokenizer, texts, bits):
    # In bfloat16 quanto multiplies with another kernel, which rounds differently: see below.
    model = copy.deepcopy(two_blocks).float()
    before = copy.deepcopy(model.state_dict())
    result, difference = quantized(model, tokenizer, texts, bits)
    assert difference < 1e-5
    for name, weight in result.weights.items():
        rows, inputs = weight.shape
        # A float32 per row; or a scale and a shift per 128 inputs.
        assert result.bits[name] == bits * rows * inputs + 32 * rows * (1 if bits == 8 else 2 * inputs // 128)
    assert result.left_alone == ["model.embed_tokens.weight"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_in_16_bits_weights_are_those_of_its_kernel(two_blocks, tokenizer, texts):
    result, difference = quantized(two_blocks, tokenizer, texts, 4)
    # bfloat16 has 8 bits, and the sums of two blocks are rounded to it in another order.
    assert difference < 0.05
    assert bits_per_weight(result) == 4.25
