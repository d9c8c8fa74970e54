import copy
import os

import pytest
import torch

from laaciq.backends import gptqmodel
from tests.backends.agreement import logit_difference, logits, relative_difference, with_weights

pytest.importorskip("gptqmodel")


def quantized(model, tokenizer, texts, bits, folder):
    """The result, and how far it is from what the library computes in float32 after saving and loading its model."""
    # Its layers would compile themselves, which takes minutes.
    with gptqmodel.contained(), torch.compiler.set_stance("force_eager"):
        result, library_model = gptqmodel.quantize_copy(folder, model, tokenizer, texts, bits, "cpu")
        from gptqmodel import BACKEND, GPTQModel

        library_model.save(str(folder / "quantized"))
        # In bfloat16, its choice on the CPU, it would round the scales too.
        backend = BACKEND.GPTQ_TORCH
        loaded = GPTQModel.load(str(folder / "quantized"), backend=backend, device="cpu", dtype=torch.float16)
        ours = copy.deepcopy(model).float()
        return result, logit_difference(ours, result, loaded.model.float(), tokenizer, texts[0])


@pytest.mark.parametrize("bits", [4, 3])
def test_it_computes_what_the_library_computes(
    two_blocks, tokenizer, texts, bits, capfd, tmp_path, tmp_path_factory, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before, environment = copy.deepcopy(two_blocks.state_dict()), dict(os.environ)
    result, difference = quantized(two_blocks, tokenizer, texts, bits, tmp_path_factory.mktemp("library"))
    # Weights are rounded to float16 here, and are not there: 2⁻¹¹ each.
    assert difference < 5e-3
    for name, weight in result.weights.items():
        outputs, inputs = weight.shape
        # A float16 and a zero point per group of 128, and the group of every input.
        assert result.bits[name] == bits * weight.numel() + (16 + bits) * outputs * inputs // 128 + 32 * inputs
    assert result.left_alone == ["model.embed_tokens.weight"]
    assert all(torch.equal(value, before[name]) for name, value in two_blocks.state_dict().items())
    assert dict(os.environ) == environment
    assert "GPT-QModel" not in capfd.readouterr().out
    assert not list(tmp_path.iterdir())


def test_texts_decide_the_rounding(two_blocks, tokenizer, texts):
    name = "model.layers.1.mlp.down_proj.weight"
    one, other = (
        gptqmodel.quantize(two_blocks, tokenizer, read, bits=4).weights[name] for read in (texts[:2], texts[2:])
    )
    assert not torch.equal(one, other)


def test_layers_of_gpt2_are_quantized_as_they_lie(gpt2, texts, tmp_path):
    model, tokenizer = gpt2
    texts = [text[:80] for text in texts]  # within its positions
    result, difference = quantized(model, tokenizer, texts, 4, tmp_path)
    assert difference < 5e-3
    assert len(result.weights) == 8
    original = copy.deepcopy(model).float()
    ours = logits(with_weights(original, result), tokenizer, texts[0])
    # A square matrix that was transposed by mistake would make it of the order of 1.
    assert relative_difference(ours, logits(original, tokenizer, texts[0])) < 0.3


def test_layers_that_it_cannot_pack_are_left_alone(gpt2, texts, tmp_path):
    model, tokenizer = copy.deepcopy(gpt2)
    texts = [text[:80] for text in texts]
    for block in model.transformer.h:
        block.mlp.c_fc.weight = torch.nn.Parameter(block.mlp.c_fc.weight[:, :40].clone())
        block.mlp.c_fc.bias = torch.nn.Parameter(block.mlp.c_fc.bias[:40].clone())
        block.mlp.c_fc.nf = 40
        block.mlp.c_proj.weight = torch.nn.Parameter(block.mlp.c_proj.weight[:40].clone())
    model.config.n_inner = 40
    result, difference = quantized(model, tokenizer, texts, 3, tmp_path)
    assert difference < 5e-3
    assert {name for name in result.left_alone if ".mlp." in name} == {
        f"transformer.h.{block}.mlp.{layer}.weight" for block in (0, 1) for layer in ("c_fc", "c_proj")
    }


def test_an_error_in_a_worker_is_raised(two_blocks, tokenizer, texts, monkeypatch):
    """The library would end the process."""

    def fail(*_, **__):
        raise ValueError("no packing today")

    monkeypatch.setattr("gptqmodel.looper.gptq_processor.pack_module", fail)
    with pytest.raises(ValueError, match="no packing today"):
        gptqmodel.quantize(two_blocks, tokenizer, texts, bits=4)
