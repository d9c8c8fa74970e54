"""What many interventions cost all languages together: worst loss, disparity and mean of each, with the same resamples, so that they can be
compared and ranked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from laaciq.corpus import Texts
from laaciq.evaluation import Estimate
from laaciq.stats.bootstrap import LEVEL, basic_interval, document_counts, resampled_ratios

Measure = Literal["worst", "disparity", "mean"]


class Rank(BaseModel):
    """From 1, the best, with its 95 % interval: resampled, and all ranked anew in every draw."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: int
    low: int
    high: int


@dataclass(frozen=True)
class Outcomes:
    """`loss` is ΔNLL per token, (interventions, languages). `observed` and `draws` are by measure, along interventions and (draws,
    interventions): ΔNLL of the worst language, max D − min D, mean ΔNLL.

    No language is left out, however much it lost: an intervention must not look better because a language collapsed.
    """

    languages: list[str]
    loss: np.ndarray
    observed: dict[Measure, np.ndarray]
    draws: dict[Measure, np.ndarray]

    def estimate(self, measure: Measure, index: int) -> Estimate:
        found = _estimate(self.observed[measure][index], self.draws[measure][:, index])
        if measure != "disparity":
            return found
        # A difference between extremes is never negative.
        return Estimate(value=found.value, low=max(0.0, found.low), high=max(0.0, found.high))

    def difference(self, measure: Measure, index: int, other: int) -> Estimate:
        """Of `index` minus `other`, paired."""
        values, draws = self.observed[measure], self.draws[measure]
        return _estimate(values[index] - values[other], draws[:, index] - draws[:, other])

    def best(self, measure: Measure, among: list[int] | None = None) -> int:
        members = range(len(self.loss)) if among is None else among
        return min(members, key=lambda index: self.observed[measure][index])

    def rank(self, measure: Measure, index: int) -> Rank:
        """One more than there are better ones."""
        values, draws = self.observed[measure], self.draws[measure]
        drawn = 1 + (draws < draws[:, [index]]).sum(1)
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
        return Rank(value=1 + int((values < values[index]).sum()), low=int(low), high=int(high))

    def best_draws(self, measure: Measure) -> np.ndarray:
        """Which intervention is best in every draw."""
        return self.draws[measure].argmin(1)

    def worst_language(self, index: int) -> str:
        return self.languages[int(self.loss[index].argmax())]


def outcomes(
    texts: Texts, loss: Mapping[str, np.ndarray], tokens: Mapping[str, np.ndarray], *, draws: int, seed: int
) -> Outcomes:
    """From each language's ΔNLL in nats, (interventions, passages), and tokens by passage."""
    observed = []
    highest, lowest, total = np.array(-np.inf), np.array(np.inf), np.array(0.0)
    for code, own in loss.items():
        names, member = np.unique(texts[code].documents, return_inverse=True)
        counts = document_counts(len(names), draws=draws, seed=seed, stream="" if texts.parallel else code)
        within = np.eye(len(names))[member]
        numerator, denominator = (own @ within).T, (tokens[code] @ within)[:, None]
        observed.append(numerator.sum(0) / denominator.sum(0))
        drawn = resampled_ratios(numerator, denominator, counts)
        highest, lowest, total = np.maximum(highest, drawn), np.minimum(lowest, drawn), total + drawn
    values = np.stack(observed, axis=1)
    return Outcomes(
        languages=list(loss),
        loss=values,
        observed={
            "worst": values.max(1),
            "disparity": np.expm1(values.max(1)) - np.expm1(values.min(1)),
            "mean": values.mean(1),
        },
        draws={
            "worst": highest,
            "disparity": np.expm1(highest) - np.expm1(lowest),
            "mean": total / len(loss),
        },
    )


def _estimate(value: float, draws: np.ndarray) -> Estimate:
    # A maximum over noisy languages is biased in the draws as in the data.
    low, high = basic_interval(float(value), draws)
    return Estimate(value=float(value), low=low, high=high)
