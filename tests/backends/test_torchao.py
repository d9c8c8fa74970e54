import copy

import pytest
import torch

from laaciq.backends import torchao
from laaciq.backends.registry import find_backend

pytest.importorskip("torchao")


@pytest.mark.parametrize("bits", [4, 2])
def test_it_computes_what_the_library_computes(two_blocks, tokenizer, texts, bits):
    before = copy.deepcopy(two_blocks.state_dict())
    found, difference = torchao.check(two_blocks, tokenizer, texts, bits=bits)
    assert difference < 1e-6
    # A byte a weight at any bits; for 32 of them 16 bits of scale and 8 of zero point. Packed and without those zeros: the bits and 0.5.
    assert found.bits_per_weight == 8.75
    assert f"{bits}.50 bits a weight if it were packed" in found.settings
    assert found.left_alone == ["model.embed_tokens.weight"]
    for weight in found.weights.values():
        levels = weight.float().view(-1, 32)
        assert max(len(group.unique()) for group in levels) <= 2**bits
    assert all(torch.equal(value, before[name]) for name, value in two_blocks.state_dict().items())


def test_8_bits_are_rows(two_blocks, tokenizer, texts):
    # Its kernel multiplies by the scale last: in bfloat16 that is another rounding.
    model = copy.deepcopy(two_blocks).float()
    found, difference = torchao.check(model, tokenizer, texts, bits=8)
    assert difference < 1e-5
    for name, weight in found.weights.items():
        # A float32 and 8 bits of zero point a row, though symmetric.
        assert found.bits[name] == 8 * weight.numel() + (32 + 8) * len(weight)


def test_a_row_that_32_does_not_divide_is_left_alone(two_blocks, tokenizer):
    model = copy.deepcopy(two_blocks)
    for layer in model.model.layers:
        layer.mlp.down_proj = torch.nn.Linear(1000, 256, bias=False, dtype=torch.bfloat16)
    found = torchao.quantize(model, tokenizer, [], bits=4)
    assert "model.layers.1.mlp.down_proj.weight" in found.left_alone


def test_the_layers_of_gpt2_that_it_passes_over_are_named(gpt2):
    with pytest.warns(UserWarning, match="left 8 of 8 linear layers alone"):
        found = find_backend("torchao").quantize(*gpt2, [], bits=4)
    assert not found.weights
