"""Llama-like models as GGUF files without a tokenizer: enough for llama.cpp to quantize them and to run them on token numbers.

llama.cpp rotates neighbouring rows of a head where transformers rotates its halves, so that Llama's and Mistral's query and key rows are
interleaved in the file; Gemma's norms are stored as the 1 + w that they multiply by.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from laaciq.errors import BadOption

# Of transformers' types, the architecture in GGUF.
_ARCHITECTURES = {"llama": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "gemma3_text": "GEMMA3"}
_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def names_in_gguf(model: Any) -> dict[str, str]:
    """The tensor of the file for every parameter."""
    import gguf

    kind = model.config.model_type
    if kind not in _ARCHITECTURES:
        raise BadOption(f"llama.cpp's quantizer takes {', '.join(_ARCHITECTURES)} models here, not {kind}")
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH[_ARCHITECTURES[kind]], model.config.num_hidden_layers)
    found = {name: table.get_name(name, try_suffixes=(".weight", ".bias")) for name, _ in model.named_parameters()}
    if unknown := [name for name, there in found.items() if there is None]:
        raise BadOption(f"GGUF has no place for {unknown[0]} of this {kind} model")
    return {name: there for name, there in found.items() if there is not None}


def write_gguf(model: Any, path: Path) -> None:
    """Matrices in the model's type, everything else in float32."""
    import gguf

    config = model.config
    names = names_in_gguf(model)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[_ARCHITECTURES[config.model_type]]])
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "gemma3_text":
        writer.add_sliding_window(config.sliding_window)
    writer.add_tokenizer_model("none")
    for name, parameter in model.named_parameters():
        values = _stored_rows(model, names[name], parameter.detach().float().cpu())
        if config.model_type == "gemma3_text" and name.endswith("norm.weight"):
            values = values + 1
        kind = gguf.GGMLQuantizationType[_TYPES[parameter.dtype] if parameter.dim() > 1 else "F32"]
        writer.add_tensor(names[name], gguf.quants.quantize(values.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def restored_rows(model: Any, name_in_gguf: str, values: torch.Tensor) -> torch.Tensor:
    """Rows of a tensor of the file in transformers' order."""
    heads = _interleaved_heads(model, name_in_gguf)
    if not heads:
        return values
    return values.view(heads, -1, 2, *values.shape[1:]).transpose(1, 2).reshape(values.shape)


def _stored_rows(model: Any, name_in_gguf: str, values: torch.Tensor) -> torch.Tensor:
    heads = _interleaved_heads(model, name_in_gguf)
    if not heads:
        return values
    return values.view(heads, 2, -1, *values.shape[1:]).transpose(1, 2).reshape(values.shape)


def _interleaved_heads(model: Any, name_in_gguf: str) -> int:
    """How many heads' rows are interleaved; none but in queries and keys of Llama."""
    if _ARCHITECTURES[model.config.model_type] != "LLAMA":
        return 0
    if ".attn_q." in name_in_gguf:
        return model.config.num_attention_heads
    return model.config.num_key_value_heads if ".attn_k." in name_in_gguf else 0
