"""Names of tensors as the checkpoints on the hub have them, and so as vLLM expects them.

They are those of transformers' modules, but for the experts of a few families, which transformers renames as it loads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# Families with the names of Mixtral: `block_sparse_moe.experts.3.w1` for `mlp.experts.3.gate_proj`, and `gate` for the router.
_LIKE_MIXTRAL = ("mixtral", "minimax", "minimax_m2", "phimoe")
_PROJECTIONS = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_EXPERT = re.compile(r"\.mlp\.experts\.(\d+)\.(gate_proj|up_proj|down_proj)\b")
_ROUTER = re.compile(r"\.mlp\.(?:gate|router)\b")


def hub_names(model_type: str | None) -> Callable[[str], str]:
    """From the name of a layer or tensor in transformers to its name on the hub."""
    return _like_mixtral if model_type in _LIKE_MIXTRAL else lambda name: name


def _like_mixtral(name: str) -> str:
    name = _EXPERT.sub(lambda found: f".block_sparse_moe.experts.{found[1]}.{_PROJECTIONS[found[2]]}", name)
    return _ROUTER.sub(".block_sparse_moe.gate", name)
