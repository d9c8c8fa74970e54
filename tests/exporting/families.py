"""Tiny random models of families that GGUF files are written for, beside those of `tests.tiny`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.tiny import _roughen, save_tiny

_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
# Windows are shorter than the sequences of the tests, so that a block with the wrong attention would show.
CONFIGS: dict[str, dict[str, Any]] = {
    "mistral": {"head_dim": 16, "sliding_window": None, "num_hidden_layers": 2},
    # From a GGUF file, transformers does not read what queries are scaled by.
    "gemma3_text": {"head_dim": 256, "query_pre_attn_scalar": 256, "num_hidden_layers": 6, "sliding_window": 48},
    "phi3": {"num_hidden_layers": 2, "original_max_position_embeddings": 128, "sliding_window": None},
    "cohere2": {"head_dim": 16, "num_hidden_layers": 4, "sliding_window": 48},
    "qwen3_moe": {
        "head_dim": 16,
        "num_hidden_layers": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
    },
}


def family_config(model_type: str, **changes: Any) -> Any:
    return AutoConfig.for_model(model_type, **{**_SHAPE, **CONFIGS[model_type], **changes})


def save_family(model_type: str, folder: Path) -> Path:
    """A model with the tiny tokenizer of Llama."""
    save_tiny("llama", folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    special = {role: getattr(tokenizer, role) for role in ("bos_token_id", "eos_token_id", "pad_token_id")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(family_config(model_type, vocab_size=len(tokenizer), **special))
        _roughen(model)
    model.save_pretrained(folder)
    return folder
