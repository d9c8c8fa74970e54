"""What the data say about one claim: a statistic against the claim's threshold, or why there is none."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from laaciq.errors import LaaciqError
from laaciq.stats.estimate import Estimate
from laaciq.strict import StrictModel

# Where the claim says that the statistic lies: below or above the threshold, or between −threshold and threshold (of a ratio: 1/threshold and
# threshold).
Side = Literal["below", "above", "within"]
# On which scale noise is near normal: as it is, atanh of a correlation, logarithm of a ratio.
Scale = Literal["plain", "atanh", "log"]
_Share = Annotated[float, Field(ge=0, le=1)]


class Unanswered(LaaciqError):
    """A claim has no answer on this model. `needed` says what would give one."""

    def __init__(self, reason: str, needed: str) -> None:
        super().__init__(f"{reason}: {needed}")
        self.reason, self.needed = reason, needed


class NotApplicable(Unanswered):
    """The claim says nothing about this model."""


class TooFew(Unanswered):
    """The claim applies, and there are too few languages, models or passages to decide it."""


class Points(StrictModel):
    """A plot of one quantity against another, one named dot each."""

    x: list[float]
    y: list[float]
    names: list[str]
    x_label: str
    y_label: str


class Bars(StrictModel):
    """A plot of named values with their intervals."""

    names: list[str]
    values: list[Estimate]
    label: str


Plot = Points | Bars


class Finding(StrictModel):
    """A statistic with its 95 % interval, held against the threshold of the claim.

    `standard_error` is on `scale`; None if the interval has no finite ends. `p` is two-sided: that the true value is the threshold. `power` is
    the probability that the interval excludes the threshold, on the claimed side, if the true value is `claimed`. `languages` are the units
    of the statistic, `independent` how many independent ones they count as.
    """

    statistic: str
    estimate: Estimate
    scale: Scale
    standard_error: float | None
    threshold: float
    side: Side
    claimed: float
    p: _Share
    power: _Share
    languages: int
    independent: float
    note: str = ""
    plot: Plot | None = None
