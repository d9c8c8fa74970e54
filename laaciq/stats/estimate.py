"""A value with its interval."""

from __future__ import annotations

from laaciq.strict import StrictModel

LEVEL = 0.95


class Estimate(StrictModel):
    """A value and its 95 % interval, which always contains it."""

    value: float
    low: float
    high: float
