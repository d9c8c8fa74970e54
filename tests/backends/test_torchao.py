import copy

import pytest
import torch

from laaciq.backends import torchao
from tests.backends.agreement import bits_per_weight, logit_difference

pytest.importorskip("torchao")


@pytest.mark.parametrize("bits", [4, 2])
def test_it_computes_what_the_library_computes(two_blocks, tokenizer, texts, bits):
    before = copy.deepcopy(two_blocks.state_dict())
    result, library_model = torchao.quantize_copy(two_blocks, bits, "cpu")
    assert logit_difference(two_blocks, result, library_model, tokenizer, texts[0]) < 1e-6
    # A byte per weight at any bits; for 32 of them 16 bits of scale and 8 of zero point. Packed and without zero points: the bits and 0.5.
    assert bits_per_weight(result) == 8.75
    assert f"{bits}.50 bits per weight if it were packed" in result.settings
    assert result.left_alone == ["model.embed_tokens.weight"]
    for weight in result.weights.values():
        levels = weight.float().view(-1, 32)
        assert max(len(group.unique()) for group in levels) <= 2**bits
    assert all(torch.equal(value, before[name]) for name, value in two_blocks.state_dict().items())


def test_8_bits_are_rows(two_blocks, tokenizer, texts):
    # Its kernel multiplies by the scale last: in bfloat16 that rounds differently.
    model = copy.deepcopy(two_blocks).float()
    result, library_model = torchao.quantize_copy(model, 8, "cpu")
    assert logit_difference(model, result, library_model, tokenizer, texts[0]) < 1e-5
    for name, weight in result.weights.items():
        # A float32 and 8 bits of zero point per row, although symmetric.
        assert result.bits[name] == 8 * weight.numel() + (32 + 8) * len(weight)


def test_a_row_that_32_does_not_divide_is_left_alone(two_blocks, tokenizer):
    model = copy.deepcopy(two_blocks)
    for layer in model.model.layers:
        layer.mlp.down_proj = torch.nn.Linear(1000, 256, bias=False, dtype=torch.bfloat16)
    result = torchao.quantize(model, tokenizer, [], bits=4)
    assert "model.layers.1.mlp.down_proj.weight" in result.left_alone
