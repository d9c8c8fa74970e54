"""How numbers are printed in reports."""

from __future__ import annotations

import math

from laaciq.evaluation.results import Estimate
from laaciq.evaluation.verdict import percent

ABSENT = "–"


def number(value: float, decimals: int = 1) -> str:
    # z: a small loss below zero is 0.0, not -0.0.
    return f"{value:z,.{decimals}f}" if math.isfinite(value) else ABSENT


def percent_estimate(estimate: Estimate) -> str:
    """`3.2 % [2.8, 3.7]`."""
    return _with_bounds(percent(estimate.value), 100 * estimate.low, 100 * estimate.high)


def bits_estimate(estimate: Estimate) -> str:
    return _with_bounds(number(estimate.value), estimate.low, estimate.high)


def _with_bounds(value: str, low: float, high: float) -> str:
    return value if value == ABSENT else f"{value} [{number(low)}, {number(high)}]"


def byte_size(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{number(size / scale)} {unit}"
    return f"{size} bytes"
