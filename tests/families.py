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
    """`config` beside the common shape; `reasons` are why block weights stay in 16 bits, for an empty set all are quantized."""

    model_type: str
    config: dict[str, Any] = field(default_factory=dict)
    reasons: frozenset[str] = frozenset()
    kind: str = "causal"

    @property
    def experts(self) -> bool:
        return any("experts" in name for name in self.config)


_EXPERTS = {"num_experts_per_tok": 2}
_ROUTER = frozenset({"router"})
FAMILIES: dict[str, Family] = {
    "Qwen3-MoE": Family("qwen3_moe", {"num_experts": 4, "moe_intermediate_size": 16, **_EXPERTS}, _ROUTER),
    "Mixtral": Family("mixtral", {"num_local_experts": 4, **_EXPERTS}, _ROUTER),
    "gpt-oss": Family("gpt_oss", {"num_local_experts": 4, **_EXPERTS}, _ROUTER),
    "OLMoE": Family("olmoe", {"num_experts": 4, **_EXPERTS}, _ROUTER),
}


def save_family(name: str, folder: Path, *, dtype: torch.dtype = torch.float32, **overrides: Any) -> Path:
    """A complete checkpoint."""
    family = FAMILIES[name]
    return save_model(family.model_type, folder, {**_SHAPE, **family.config, **overrides}, dtype=dtype)
