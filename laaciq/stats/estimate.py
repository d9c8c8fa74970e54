"""A value with its interval."""

from __future__ import annotations

from laaciq.strict import StrictModel

LEVEL = 0.95
# Probability that the true value lies beyond one end of an interval.
TAIL = (1 - LEVEL) / 2


class Estimate(StrictModel, ser_json_inf_nan="strings"):
    """A value and its 95 % interval, which always contains it. The end of a ratio may be infinite, in JSON "Infinity"."""

    value: float
    low: float
    high: float
