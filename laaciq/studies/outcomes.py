"""Outcomes of many interventions over all languages: worst loss, disparity and mean of each, compared and ranked on the same documents."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from laaciq.corpus import Texts
from laaciq.stats.estimate import LEVEL, Estimate
from laaciq.stats.ratio import ratio_influence
from laaciq.strict import StrictModel
from laaciq.trials.losses import Losses

Measure = Literal["worst", "disparity", "mean"]


class Rank(StrictModel):
    """A rank, 1 is best, with its 95 % interval from ranking everything again in every resample."""

    value: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Outcomes:
    """`interventions` hold the losses of each. `observed` and `draws` are by measure, along interventions and (draws, interventions): ΔNLL
    of the worst language, max D − min D, mean ΔNLL. A draw is a resample of the documents, the same for all interventions.

    Collapsed languages are included: an intervention must not look better because a language collapsed.
    """

    languages: list[str]
    interventions: list[Losses]
    observed: dict[Measure, np.ndarray]
    draws: dict[Measure, np.ndarray]

    @property
    def loss(self) -> np.ndarray:
        """ΔNLL per token, (interventions, languages)."""
        return np.stack([losses.per_token for losses in self.interventions])

    def estimate(self, measure: Measure, index: int) -> Estimate:
        losses = self.interventions[index]
        if measure == "mean":
            return losses.mean()
        return losses.worst()[1] if measure == "worst" else losses.disparity().estimate

    def difference(self, measure: Measure, index: int, other: int) -> Estimate:
        """`index` minus `other`, paired."""
        left, right = self.interventions[index], self.interventions[other]
        if measure == "mean":
            return left.mean_difference(right)
        return left.worst_difference(right) if measure == "worst" else left.disparity_difference(right)

    def best(self, measure: Measure, among: list[int] | None = None) -> int:
        members = range(len(self.interventions)) if among is None else among
        return min(members, key=lambda index: self.observed[measure][index])

    def rank(self, measure: Measure, index: int) -> Rank:
        """One plus the number of better interventions, with its interval."""
        values, draws = self.observed[measure], self.draws[measure]
        drawn = 1 + (draws < draws[:, [index]]).sum(1)
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
        value = 1 + int((values < values[index]).sum())
        return Rank(value=value, low=min(value, int(low)), high=max(value, int(high)))

    def best_draws(self, measure: Measure) -> np.ndarray:
        """The best intervention of every draw."""
        return self.draws[measure].argmin(1)

    def worst_language(self, index: int) -> str:
        return self.languages[int(self.interventions[index].per_token.argmax())]


def outcomes(
    texts: Texts, loss: Mapping[str, np.ndarray], tokens: Mapping[str, np.ndarray], *, draws: int, seed: int
) -> Outcomes:
    """Outcomes from ΔNLL in nats by language, (interventions, passages), and tokens by passage."""
    documents = {code: texts[code].documents for code in loss}
    interventions = [
        Losses.of(dict(zip(loss, by_code, strict=True)), tokens, documents, parallel=texts.parallel, seed=seed)
        for by_code in zip(*loss.values(), strict=True)
    ]
    values = np.stack([losses.per_token for losses in interventions])
    highest, lowest, total = np.array(-np.inf), np.array(np.inf), np.array(0.0)

    @cache  # parallel texts share their resamples over languages
    def weights(stream: str, count: int) -> np.ndarray:
        return np.random.default_rng([seed, zlib.crc32(stream.encode())]).standard_normal((draws, count))

    for place, code in enumerate(loss):
        numerator = np.stack([losses.loss[place][0] for losses in interventions], axis=1)
        influence = ratio_influence(numerator, interventions[0].tokens[place][:, None])
        drawn = values[:, place] + weights("" if texts.parallel else code, len(influence)) @ influence
        highest, lowest, total = np.maximum(highest, drawn), np.minimum(lowest, drawn), total + drawn
    return Outcomes(
        languages=list(loss),
        interventions=interventions,
        observed={"worst": values.max(1), "disparity": np.ptp(np.expm1(values), axis=1), "mean": values.mean(1)},
        draws={"worst": highest, "disparity": np.expm1(highest) - np.expm1(lowest), "mean": total / len(loss)},
    )
