"""A value with its interval."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

LEVEL = 0.95
# Probability that the true value lies beyond one end of an interval.
TAIL = (1 - LEVEL) / 2


class Estimate(BaseModel):
    """A value and its 95 % interval, which always contains it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float
    low: float
    high: float
