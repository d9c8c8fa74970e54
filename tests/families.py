"""Tiny random models of the families that multilingual teams use: their sizes, and the share of block weights that stays in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.tiny import save_model

_SHAPE = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}


@dataclass(frozen=True)
class Family:
    """`config` beside the common shape. `share` of the block weights is quantized; `reasons` are why the others are not."""

    model_type: str
    config: dict[str, Any] = field(default_factory=dict)
    share: float = 1.0
    reasons: frozenset[str] = frozenset()

    @property
    def wrapped(self) -> bool:
        """A language model with vision beside it."""
        return "vision_config" in self.config

    @property
    def experts(self) -> bool:
        return any("experts" in name for name in self.config)


_EXPERTS = {"num_experts_per_tok": 2}
_ROUTER = frozenset({"router"})
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
FAMILIES: dict[str, Family] = {
    **{
        name: Family(model_type, config)
        for name, (model_type, config) in {
            "Qwen3": ("qwen3", {}),
            "Gemma 2": ("gemma2", {"query_pre_attn_scalar": 8}),
            "Gemma 3 text": ("gemma3_text", {"query_pre_attn_scalar": 8}),
            "Phi-3": ("phi3", {"pad_token_id": 0}),
            "Cohere": ("cohere", {}),
            "Cohere 2": ("cohere2", {}),
            "Apertus": ("apertus", {}),
            "Nemotron": ("nemotron", {}),
            "Granite": ("granite", {}),
            "GLM-4": ("glm4", {"pad_token_id": 0}),
            "SmolLM3": ("smollm3", {"pad_token_id": 0}),
            "EXAONE 4": ("exaone4", {}),
            "OLMo 2": ("olmo2", {}),
        }.items()
    },
    "Qwen3-MoE": Family("qwen3_moe", {"num_experts": 4, "moe_intermediate_size": 16, **_EXPERTS}, 0.986, _ROUTER),
    "Mixtral": Family("mixtral", {"num_local_experts": 4, **_EXPERTS}, 0.995, _ROUTER),
    "gpt-oss": Family("gpt_oss", {"num_local_experts": 4, **_EXPERTS}, 0.995, _ROUTER),
    "OLMoE": Family("olmoe", {"num_experts": 4, **_EXPERTS}, 0.995, _ROUTER),
    "DeepSeek-V3": Family(
        "deepseek_v3",
        {
            "n_routed_experts": 4,
            "moe_intermediate_size": 32,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "num_key_value_heads": 4,
            **_EXPERTS,
        },
        0.996,
        _ROUTER,
    ),
    "Llama 4 text": Family(
        "llama4_text",
        {"num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 64, "interleave_moe_layer_step": 1},
        0.996,
        _ROUTER,
    ),
    "Qwen3-Next": Family(
        "qwen3_next",
        {
            "num_experts": 4,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention"],
            **_EXPERTS,
        },
        0.987,
        _ROUTER | {"convolution"},
    ),
    "Falcon-H1": Family(
        "falcon_h1",
        {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 16},
        0.985,
        frozenset({"convolution"}),
    ),
    "Jamba": Family(
        "jamba",
        {
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "mamba_d_state": 4,
            "mamba_d_conv": 2,
            "use_mamba_kernels": False,
        },
        0.984,
        _ROUTER | {"convolution", "state-space parameter"},
    ),
    "Mamba 2": Family(
        "mamba2",
        {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 16, "expand": 2},
        0.956,
        frozenset({"convolution"}),
    ),
    # Its experts have no gate.
    "Nemotron-H": Family(
        "nemotron_h",
        {
            "layers_block_type": ["mamba", "moe"],
            "n_routed_experts": 4,
            "moe_intermediate_size": 32,
            "moe_shared_expert_intermediate_size": 32,
            "n_group": 1,
            "topk_group": 1,
            "mamba_num_heads": 4,
            "mamba_head_dim": 16,
            "ssm_state_size": 8,
            "n_groups": 1,
            "chunk_size": 16,
            **_EXPERTS,
        },
        0.974,
        _ROUTER | {"convolution"},
    ),
    "Gemma 3 with vision": Family(
        "gemma3",
        {
            "text_config": {**_SHAPE, "query_pre_attn_scalar": 8},
            "vision_config": {**_VISION, "model_type": "siglip_vision_model"},
            "mm_tokens_per_image": 4,
        },
    ),
    "Qwen3-VL": Family(
        "qwen3_vl",
        {
            "text_config": {**_SHAPE, "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}},
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 32,
                "depth": 1,
                "num_heads": 2,
                "out_hidden_size": 32,
                "deepstack_visual_indexes": [0],
                "num_position_embeddings": 16,
            },
        },
    ),
    "Aya Vision": Family(
        "aya_vision",
        {
            "text_config": {**_SHAPE, "model_type": "cohere2"},
            "vision_config": {**_VISION, "model_type": "siglip_vision_model"},
        },
    ),
    "Mistral 3": Family(
        "mistral3",
        {
            "text_config": {**_SHAPE, "model_type": "mistral"},
            "vision_config": {**_VISION, "head_dim": 8, "model_type": "pixtral"},
        },
    ),
}


def save_family(name: str, folder: Path, *, dtype: torch.dtype = torch.float32, **overrides: Any) -> Path:
    """A complete checkpoint."""
    family = FAMILIES[name]
    shape = {} if family.wrapped else _SHAPE
    kind = "wrapped" if family.wrapped else "causal"
    return save_model(family.model_type, folder, {**shape, **family.config, **overrides}, kind=kind, dtype=dtype)
