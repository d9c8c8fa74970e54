"""What a quantized model loses, by language and document: the one type that statistics over languages are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from laaciq.stats import comparisons
from laaciq.stats.estimate import Estimate
from laaciq.stats.extremes import TAIL, RangeEstimate, maximum_estimate, range_estimate
from laaciq.stats.joint import JointEstimates
from laaciq.stats.ratio import ratio_influence
from laaciq.trials.measurement import Measurement

# Of noise, for the critical values of extremes.
DRAWS = 2000


@dataclass(frozen=True)
class Losses:
    """ΔNLL in nats and tokens for each language of `codes`, summed by document: `loss` is (draws of calibration text, documents).

    Passages of a document count together. Documents of parallel text are the same in all languages, and what they share is not noise between
    languages. Two `Losses` of the same documents are compared document by document. Every language needs two documents.
    """

    codes: list[str]
    documents: list[np.ndarray]
    loss: list[np.ndarray]
    tokens: list[np.ndarray]
    parallel: bool
    seed: int
    draws: int = DRAWS

    @classmethod
    def of(
        cls,
        loss: Mapping[str, ArrayLike],
        tokens: Mapping[str, ArrayLike],
        documents: Mapping[str, Sequence[str]],
        *,
        parallel: bool,
        seed: int,
        draws: int = DRAWS,
    ) -> Losses:
        """From losses, tokens and names of documents by passage, for the languages of `loss`.

        A loss may have two axes: draws of calibration text, and passages. Intervals then cover other draws as well as other passages.
        """
        summed = Losses([], [], [], [], parallel=parallel, seed=seed, draws=draws)
        for code, by_passage in loss.items():
            names, member = np.unique(np.asarray(documents[code]), return_inverse=True)
            within = np.eye(len(names))[member]
            summed.codes.append(code)
            summed.documents.append(names)
            summed.loss.append(np.atleast_2d(np.asarray(by_passage, dtype=float)) @ within)
            summed.tokens.append(np.asarray(tokens[code], dtype=float) @ within)
        return summed

    @classmethod
    def measured(
        cls, measurements: Mapping[str, Measurement], *, parallel: bool, seed: int, divergence: bool = False
    ) -> Losses:
        """ΔNLL of measurements by language or, with `divergence`, KL(original ‖ quantized)."""
        return cls.of(
            {code: (m.kl or []) if divergence else m.loss for code, m in measurements.items()},
            {code: m.tokens for code, m in measurements.items()},
            {code: m.documents for code, m in measurements.items()},
            parallel=parallel,
            seed=seed,
        )

    def plus(self, others: Sequence[Losses]) -> Losses:
        """The sum with losses of the same documents."""
        sides = zip(self.loss, *(other.loss for other in others), strict=True)
        return replace(self, loss=[np.sum(parts, axis=0) for parts in sides])

    def scaled(self, factor: float) -> Losses:
        """Every loss times the factor."""
        return replace(self, loss=[factor * loss for loss in self.loss])

    def over(self, whole: Losses) -> Losses:
        """The share of `whole`, losses of the same documents, in place of losses per token."""
        return replace(self, tokens=[loss.mean(0) for loss in whole.loss])

    def only(self, codes: Sequence[str]) -> Losses:
        """Of these languages alone."""
        places = [self.codes.index(code) for code in codes]

        def chosen(values: list[np.ndarray]) -> list[np.ndarray]:
            return [values[place] for place in places]

        return replace(
            self,
            codes=list(codes),
            documents=chosen(self.documents),
            loss=chosen(self.loss),
            tokens=chosen(self.tokens),
        )

    @property
    def per_token(self) -> np.ndarray:
        """ΔNLL per token by language."""
        return self.by_draw.mean(0)

    @cached_property
    def by_draw(self) -> np.ndarray:
        """ΔNLL per token, (draws of calibration text, languages)."""
        return np.stack([loss.sum(1) / tokens.sum() for loss, tokens in zip(self.loss, self.tokens, strict=True)], 1)

    @cached_property
    def influence(self) -> list[np.ndarray]:
        """What each document contributes to the error of a language's loss per token."""
        parts = zip(self.loss, self.tokens, strict=True)
        return [ratio_influence(loss.mean(0), tokens) for loss, tokens in parts]

    @cached_property
    def joint(self) -> JointEstimates:
        return _joint([self])

    @property
    def degradations(self) -> JointEstimates:
        """D = exp(ΔNLL per token) − 1 by language (delta method)."""
        return _degradations(self.joint)

    # One quantization

    def by_language(self) -> dict[str, Estimate]:
        """ΔNLL per token of each language; Student's intervals."""
        values, margins = self.joint.values, self.joint.margins(TAIL)
        return {
            code: Estimate(value=float(value), low=float(value - margin), high=float(value + margin))
            for code, value, margin in zip(self.codes, values, margins, strict=True)
        }

    def mean(self) -> Estimate:
        """ΔNLL per token, the mean over languages."""
        mean = self.joint.linear(np.full((1, len(self.codes)), 1 / len(self.codes)))
        value, margin = float(mean.values[0]), float(mean.margins(TAIL)[0])
        return Estimate(value=value, low=value - margin, high=value + margin)

    def worst(self) -> tuple[str, Estimate]:
        """The language that loses most, and the largest loss of any language."""
        estimate = maximum_estimate(self.joint, draws=self.draws, seed=self.seed)
        return self.codes[int(self.per_token.argmax())], estimate

    def disparity(self) -> RangeEstimate:
        """max D − min D. Needs two languages."""
        return range_estimate(self.joint, draws=self.draws, seed=self.seed)

    # Against another quantization of the same model, on the same documents

    def difference(self, other: Losses, code: str) -> Estimate:
        """How much more one language loses here than in `other`."""
        return comparisons.mean_difference(_joint([self.only([code]), other.only([code])]))

    def mean_difference(self, other: Losses) -> Estimate:
        """How much more the languages lose here than in `other`, on average."""
        return comparisons.mean_difference(self._beside(other))

    def worst_difference(self, other: Losses) -> Estimate:
        """How much more the worst language loses here than the worst language of `other`, which may be another one."""
        return comparisons.maximum_difference(self._beside(other), draws=self.draws, seed=self.seed)

    def disparity_difference(self, other: Losses) -> Estimate:
        """How much larger max D − min D is here than in `other`."""
        return comparisons.range_difference(_degradations(self._beside(other)), draws=self.draws, seed=self.seed)

    def mean_ratio(self, other: Losses) -> Estimate:
        """The mean loss over that of `other`."""
        return comparisons.mean_ratio(self._beside(other))

    def worst_ratio(self, other: Losses) -> Estimate:
        """The worst language's loss over that of the worst language of `other`."""
        return comparisons.maximum_ratio(self._beside(other), draws=self.draws, seed=self.seed)

    def disparity_ratio(self, other: Losses) -> Estimate:
        """max D − min D over that of `other`."""
        return comparisons.range_ratio(_degradations(self._beside(other)), draws=self.draws, seed=self.seed)

    def _beside(self, other: Losses) -> JointEstimates:
        return _joint([self, other.only(self.codes)])


def _degradations(joint: JointEstimates) -> JointEstimates:
    return joint.scaled(np.exp(joint.values), np.expm1(joint.values))


def _joint(sides: list[Losses]) -> JointEstimates:
    """Of all languages of the first, then of the second."""
    values = np.concatenate([side.per_token for side in sides])
    return JointEstimates(values, (*_document_noise(sides), *_calibration_noise(sides)))


def _document_noise(sides: list[Losses]) -> list[tuple[np.ndarray, float]]:
    """One part for parallel text, else one for each language."""
    first = sides[0]
    size = len(first.codes)
    groups = [list(range(size))] if first.parallel else [[place] for place in range(size)]
    parts = []
    for group in groups:
        names = np.unique(np.concatenate([side.documents[place] for side in sides for place in group]))
        influence = np.zeros((len(names), size * len(sides)))
        for number, side in enumerate(sides):
            for place in group:
                rows = np.searchsorted(names, side.documents[place])
                influence[rows, number * size + place] = side.influence[place]
        fewest = min(len(side.documents[place]) for side in sides for place in group)
        parts.append((influence.T @ influence, fewest - 1.0))
    return parts


def _calibration_noise(sides: list[Losses]) -> list[tuple[np.ndarray, float]]:
    """All languages share the draws of calibration text; so do two quantizations that have as many. A method that reads no text has one."""
    size = len(sides[0].codes)
    parts = []
    for count in sorted({len(side.by_draw) for side in sides} - {1}):
        deviations = np.zeros((count, size * len(sides)))
        for number, side in enumerate(sides):
            if len(side.by_draw) == count:
                deviations[:, number * size : (number + 1) * size] = side.by_draw - side.per_token
        parts.append((deviations.T @ deviations / (count * (count - 1)), count - 1.0))
    return parts
