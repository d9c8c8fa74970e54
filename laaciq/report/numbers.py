"""How numbers are printed in reports."""

from __future__ import annotations

import math

from laaciq.evaluation.results import Estimate

ABSENT = "–"


def number(value: float, decimals: int = 1) -> str:
    # z: a small loss below zero is 0.0, not -0.0.
    return f"{value:z,.{decimals}f}" if math.isfinite(value) else ABSENT


def bits_estimate(estimate: Estimate) -> str:
    value = number(estimate.value)
    return value if value == ABSENT else f"{value} [{number(estimate.low)}, {number(estimate.high)}]"


def byte_size(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{number(size / scale)} {unit}"
    return f"{size} bytes"
