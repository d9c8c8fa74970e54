"""What a quantized model loses, by language and document: the one type that statistics over languages are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from laaciq.stats.comparisons import Sides, difference, mean_lower_end, ratio
from laaciq.stats.estimate import TAIL, Estimate
from laaciq.stats.extremes import RangeEstimate, maximum_estimate, range_estimate
from laaciq.stats.joint import JointEstimates, Part
from laaciq.stats.paired_extremes import maximum_lower_end, range_lower_end
from laaciq.stats.ratio import ratio_freedom, ratio_influence
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

    @cached_property
    def noise(self) -> np.ndarray:
        """Draws of the noise of the losses per token, (draws, languages)."""
        return self.joint.noise(self.draws, self.seed)

    @property
    def degradations(self) -> JointEstimates:
        """D = exp(ΔNLL per token) − 1 by language (delta method)."""
        return _degradations(self.joint)

    # One quantization

    def by_language(self) -> dict[str, Estimate]:
        """ΔNLL per token of each language."""
        return dict(zip(self.codes, _estimates(self.joint), strict=True))

    def mean(self) -> Estimate:
        """ΔNLL per token, the mean over languages."""
        return _estimates(self.joint.linear(np.full((1, len(self.codes)), 1 / len(self.codes))))[0]

    def worst(self) -> tuple[str, Estimate]:
        """The language that loses most, and the largest loss of any language."""
        return self.codes[int(self.per_token.argmax())], maximum_estimate(self.joint, self.noise)

    def disparity(self) -> RangeEstimate:
        """max D − min D; 0 for a single language."""
        return range_estimate(self.joint, self.noise)

    # Against another quantization of the same model, on the same documents

    def difference(self, other: Losses, code: str) -> Estimate:
        """How much more one language loses here than in `other`."""
        size = len(self.codes)
        differences = self._beside(other).linear(np.hstack([np.eye(size), -np.eye(size)]))
        return _estimates(differences)[self.codes.index(code)]

    def mean_difference(self, other: Losses) -> Estimate:
        """How much more the languages lose here than in `other`, on average."""
        size = len(self.codes)
        return _estimates(self._beside(other).linear(np.repeat([1.0, -1.0], size)[None] / size))[0]

    def worst_difference(self, other: Losses) -> Estimate:
        """How much more the worst language loses here than the worst language of `other`, which may be another one."""
        return difference(self._sides(self._beside(other)), np.max, maximum_lower_end)

    def disparity_difference(self, other: Losses) -> Estimate:
        """How much larger max D − min D is here than in `other`."""
        return difference(self._sides(_degradations(self._beside(other))), np.ptp, range_lower_end)

    def mean_ratio(self, other: Losses) -> Estimate:
        """The mean loss over that of `other`."""
        joint = self._beside(other)
        return ratio(Sides(joint, np.empty((0, len(joint.values)))), np.mean, mean_lower_end)

    def worst_ratio(self, other: Losses) -> Estimate:
        """The worst language's loss over that of the worst language of `other`."""
        return ratio(self._sides(self._beside(other)), np.max, maximum_lower_end)

    def disparity_ratio(self, other: Losses) -> Estimate:
        """max D − min D over that of `other`."""
        estimate = ratio(self._sides(_degradations(self._beside(other))), np.ptp, range_lower_end)
        # A range is never negative.
        return Estimate(value=estimate.value, low=max(0.0, estimate.low), high=estimate.high)

    def _beside(self, other: Losses) -> JointEstimates:
        return _joint([self, other.only(self.codes)])

    def _sides(self, joint: JointEstimates) -> Sides:
        return Sides(joint, joint.noise(self.draws, self.seed))


def _estimates(joint: JointEstimates) -> list[Estimate]:
    below, above = joint.margins(TAIL)
    return [
        Estimate(value=float(value), low=float(value - down), high=float(value + up))
        for value, down, up in zip(joint.values, below, above, strict=True)
    ]


def _degradations(joint: JointEstimates) -> JointEstimates:
    return joint.scaled(np.exp(joint.values), np.expm1(joint.values))


def _joint(sides: list[Losses]) -> JointEstimates:
    """Of all languages of the first, then of the second."""
    values = np.concatenate([side.per_token for side in sides])
    return JointEstimates.of(values, [*_document_noise(sides), *_calibration_noise(sides)])


def _document_noise(sides: list[Losses]) -> list[Part]:
    """One part for parallel text, else one for each language."""
    first = sides[0]
    size = len(first.codes)
    groups = [list(range(size))] if first.parallel else [[place] for place in range(size)]
    parts = []
    for group in groups:
        columns = np.concatenate([number * size + np.array(group) for number in range(len(sides))])
        members = [(side, place) for side in sides for place in group]
        names = np.unique(np.concatenate([side.documents[place] for side, place in members]))
        influence = np.zeros((len(names), len(members)))
        for column, (side, place) in enumerate(members):
            influence[np.searchsorted(names, side.documents[place]), column] = side.influence[place]
        freedom = np.array([ratio_freedom(side.tokens[place]) for side, place in members])
        parts.append(Part(columns, influence, freedom))
    return parts


def _calibration_noise(sides: list[Losses]) -> list[Part]:
    """All languages share the draws of calibration text; so do two quantizations that have as many. A method that reads no text has one."""
    size = len(sides[0].codes)
    parts = []
    for count in sorted({len(side.by_draw) for side in sides} - {1}):
        deviations = np.zeros((count, size * len(sides)))
        for number, side in enumerate(sides):
            if len(side.by_draw) == count:
                deviations[:, number * size : (number + 1) * size] = side.by_draw - side.per_token
        columns = np.arange(size * len(sides))
        parts.append(Part(columns, deviations / np.sqrt(count * (count - 1)), np.full(len(columns), count - 1.0)))
    return parts
