"""Mixes of calibration text: how much each language counts. The shares sum to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from laaciq.corpus import language

# The simplest first: where mixes are equally good, it is the one to take.
Mix = Literal["equal", "proportional", "minimax", "only"]
MIXES: tuple[Mix, ...] = get_args(Mix)


def proportional_weights(tokens: Mapping[str, int]) -> dict[str, float]:
    """Every token counts the same, as in a text where languages just follow each other."""
    total = sum(tokens.values())
    return {code: count / total for code, count in tokens.items()}


def mix_name(mix: Mix, only: str) -> str:
    return f"{language(only).name} only" if mix == "only" else mix
