"""transformers reads GGUF: a file of quantized blocks must become a plain model with the dequantized weights."""

import json

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Block

from laaciq.models import find_model, load
from laaciq.models.gguf_architecture import GgufArchitecture, tensor_names
from tests.tiny import save_tiny


def write_gguf(model, path, block):
    """Quantize all matrices by the gguf package's quantizer, and put the dequantized weights into `model`."""
    config, tokenizer = model.module.config, model.tokenizer
    architecture = GgufArchitecture(config)
    translate = tensor_names(config.model_type, config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, architecture.name)
    architecture.describe(writer)
    vocabulary = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(sorted(vocabulary["vocab"], key=vocabulary["vocab"].get))
    writer.add_token_types([3 if token == 0 else 1 for token in range(config.vocab_size)])
    writer.add_token_merges([" ".join(merge) for merge in vocabulary["merges"]])
    writer.add_eos_token_id(0)
    for name, parameter in model.module.named_parameters():
        values = parameter.detach().numpy().astype(np.float32)
        if values.ndim < 2:
            writer.add_tensor(translate(name), values)
            continue
        stored = gguf.quantize(values, block)
        writer.add_tensor(translate(name), stored, raw_dtype=block)
        parameter.copy_(torch.from_numpy(gguf.dequantize(stored, block)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("block", [Block.Q4_0, Block.Q5_1, Block.Q8_0])
@torch.no_grad()
def test_quantized_blocks_load_as_the_weights_that_they_mean(block, tmp_path):
    model = load(find_model(save_tiny("qwen2", tmp_path / "model")), device="cpu")
    tokens = torch.arange(5, 45)[None]
    original = model.module(tokens).logits
    write_gguf(model, tmp_path / "model.gguf", block)
    loaded = load(find_model(tmp_path / "model.gguf"), device="cpu")
    expected, logits = model.module(tokens).logits, loaded.module(tokens).logits
    assert not torch.allclose(expected, original, rtol=1e-3)
    # The same weights in float32, summed in the same order.
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert [linear.shape for linear in loaded.anatomy.linears] == [linear.shape for linear in model.anatomy.linears]
    text = "Habari ya asubuhi, \u0928\u092e\u0938\u094d\u0924\u0947 123"
    assert loaded.tokenizer(text)["input_ids"] == model.tokenizer(text)["input_ids"]
