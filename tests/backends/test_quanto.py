import copy

import pytest
import torch

from laaciq.backends import quanto
from laaciq.backends.registry import find_backend

pytest.importorskip("optimum.quanto")


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_it_computes_what_the_library_computes(two_blocks, tokenizer, texts, bits):
    # In bfloat16 quanto multiplies with another kernel: that is another rounding, and tested below.
    model = copy.deepcopy(two_blocks).float()
    before = copy.deepcopy(model.state_dict())
    found, difference = quanto.check(model, tokenizer, texts, bits=bits)
    assert difference < 1e-5
    for name, weight in found.weights.items():
        rows, inputs = weight.shape
        # A float32 a row; or a scale and a shift for 128 inputs.
        assert found.bits[name] == bits * rows * inputs + 32 * rows * (1 if bits == 8 else 2 * inputs // 128)
    assert found.left_alone == ["model.embed_tokens.weight"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_in_16_bits_weights_are_those_that_its_kernel_has(two_blocks, tokenizer, texts):
    found, difference = quanto.check(two_blocks, tokenizer, texts, bits=4)
    # bfloat16 has 8 bits, and the sums of two blocks are rounded to it in another order.
    assert difference < 0.05
    assert found.bits_per_weight == 4.25


def test_no_compiler_is_called(two_blocks, tokenizer, texts, monkeypatch):
    monkeypatch.setattr("optimum.quanto.library.extensions.extension.load", lambda **_: pytest.fail("it compiles"))
    quanto.check(two_blocks, tokenizer, texts, bits=2)


def test_the_layers_of_gpt2_that_it_passes_over_are_named(gpt2):
    with pytest.warns(UserWarning, match="left 8 of 8 linear layers alone"):
        found = find_backend("quanto").quantize(*gpt2, [], bits=4)
    assert not found.weights
