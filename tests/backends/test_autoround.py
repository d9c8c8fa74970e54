import copy

import pytest
import torch
from transformers import AutoModelForCausalLM

from laaciq.backends import autoround
from tests.backends.agreement import bits_per_weight, logit_difference

pytest.importorskip("auto_round")


@pytest.mark.parametrize(("bits", "iterations"), [(4, 0), (3, 2)])
def test_it_computes_what_transformers_loads(two_blocks, tokenizer, texts, bits, iterations, capfd, tmp_path):
    before = copy.deepcopy(two_blocks.state_dict())
    result = autoround.quantize_into(
        tmp_path, two_blocks, tokenizer, texts, bits=bits, device="cpu", iterations=iterations
    )
    with autoround.quiet():
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path, device_map="cpu", dtype=torch.float32)
    # Its layers compute in float16, which has 11 bits.
    ours = copy.deepcopy(two_blocks).float()
    assert logit_difference(ours, result, loaded, tokenizer, texts[0]) < 5e-3
    # A float16 and a zero point per 128 inputs.
    assert bits_per_weight(result) == bits + (16 + bits) / 128
    assert result.left_alone == ["model.embed_tokens.weight"]
    assert all(torch.equal(value, before[name]) for name, value in two_blocks.state_dict().items())
    assert capfd.readouterr().out == ""


def test_iterations_change_the_rounding(two_blocks, tokenizer, texts):
    none, some = (autoround.quantize(two_blocks, tokenizer, texts[:1], bits=4, iterations=n).weights for n in (0, 2))
    name = "model.layers.1.mlp.down_proj.weight"
    assert not torch.equal(none[name], some[name])


def test_every_text_is_read(tokenizer, texts):
    sequences = autoround._sequences(tokenizer, texts, 100)
    total = sum(len(tokenizer(text)["input_ids"]) for text in texts)
    assert {s.shape for s in sequences} == {(1, total // len(sequences))}
    assert total // len(sequences) <= 100
    assert total - len(sequences) < sum(s.numel() for s in sequences) <= total


def test_layers_of_gpt2_are_quantized_as_they_lie(gpt2, texts):
    model, tokenizer = gpt2
    result = autoround.quantize(model, tokenizer, [text[:80] for text in texts], bits=4, iterations=0)
    for name, weight in result.weights.items():
        original = model.get_parameter(name).float()
        assert (weight - original).norm() / original.norm() < 0.15
    assert len(result.weights) + len(result.left_alone) == 10
