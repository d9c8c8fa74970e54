"""Mixes of calibration text: the weight of each language. Weights sum to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from laaciq.corpus import language

# Simplest first: of equally good mixes, the first is recommended.
Mix = Literal["equal", "proportional", "minimax", "only"]
MIXES: tuple[Mix, ...] = get_args(Mix)


def proportional_weights(tokens: Mapping[str, int]) -> dict[str, float]:
    """Weights in proportion to tokens, as if the texts were concatenated."""
    total = sum(tokens.values())
    return {code: count / total for code, count in tokens.items()}


def mix_name(mix: Mix, only: str) -> str:
    return f"{language(only).name} only" if mix == "only" else mix
