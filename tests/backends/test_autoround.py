import copy

import pytest
import torch

from laaciq.backends import autoround

pytest.importorskip("auto_round")


@pytest.mark.parametrize(("bits", "iterations"), [(4, 0), (3, 2)])
def test_it_computes_what_the_library_computes(two_blocks, tokenizer, texts, bits, iterations, capfd):
    before = copy.deepcopy(two_blocks.state_dict())
    found, difference = autoround.check(two_blocks, tokenizer, texts, bits=bits, iterations=iterations)
    # It loads its layers in float16, which has 11 bits.
    assert difference < 5e-3
    # A float16 and a zero point for 128 inputs.
    assert found.bits_per_weight == bits + (16 + bits) / 128
    assert found.left_alone == ["model.embed_tokens.weight"]
    assert all(torch.equal(value, before[name]) for name, value in two_blocks.state_dict().items())
    assert capfd.readouterr().out == ""


def test_iterations_change_the_rounding(two_blocks, tokenizer, texts):
    none, some = (autoround.quantize(two_blocks, tokenizer, texts[:1], bits=4, iterations=n).weights for n in (0, 2))
    name = "model.layers.1.mlp.down_proj.weight"
    assert not torch.equal(none[name], some[name])


def test_every_text_is_read(tokenizer, texts):
    sequences = autoround._sequences(tokenizer, texts, 100)
    total = sum(len(tokenizer(text)["input_ids"]) for text in texts)
    assert {s["input_ids"].shape for s in sequences} == {(1, total // len(sequences))}
    assert total // len(sequences) <= 100
    assert total - len(sequences) < sum(s["input_ids"].numel() for s in sequences) <= total


def test_layers_of_gpt2_are_quantized_as_they_lie(gpt2, texts):
    model, tokenizer = gpt2
    found = autoround.quantize(model, tokenizer, [text[:80] for text in texts], bits=4, iterations=0)
    for name, weight in found.weights.items():
        original = model.get_parameter(name).float()
        assert (weight - original).norm() / original.norm() < 0.15
    assert len(found.weights) + len(found.left_alone) == 10
