"""What a quantized model loses, by language and document: the one type that statistics over languages are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from laaciq.stats.bootstrap import basic_interval, document_counts, percentile_interval, resampled_ratios
from laaciq.stats.estimate import Estimate
from laaciq.trials.measurement import Measurement

DRAWS = 2000


@dataclass(frozen=True)
class Losses:
    """ΔNLL in nats and tokens, summed by document, for each language of `codes`.

    Passages of one document are resampled together. Documents of parallel text are shared by all languages. Two `Losses` of the same
    documents and seed are resampled alike, so that their differences are paired.
    """

    codes: list[str]
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
        """From losses, tokens and names of documents by passage. Languages are those of `loss`."""
        summed: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for code, by_passage in loss.items():
            _, member = np.unique(np.asarray(documents[code]), return_inverse=True)
            summed[code] = (
                np.bincount(member, weights=np.asarray(by_passage, dtype=float)),
                np.bincount(member, weights=np.asarray(tokens[code], dtype=float)),
            )
        return cls(
            codes=list(summed),
            loss=[own for own, _ in summed.values()],
            tokens=[own for _, own in summed.values()],
            parallel=parallel,
            seed=seed,
            draws=draws,
        )

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
        return replace(
            self,
            loss=[np.sum(parts, axis=0) for parts in zip(self.loss, *(other.loss for other in others), strict=True)],
        )

    def over(self, whole: Losses) -> Losses:
        """The share of `whole`, losses of the same documents, in place of losses per token."""
        return replace(self, tokens=whole.loss)

    @property
    def per_token(self) -> np.ndarray:
        """ΔNLL per token, by language."""
        return np.array([loss.sum() / tokens.sum() for loss, tokens in zip(self.loss, self.tokens, strict=True)])

    @cached_property
    def counts(self) -> list[np.ndarray]:
        """How often each document is drawn, (draws, documents), by language."""
        return [
            document_counts(len(loss), draws=self.draws, seed=self.seed, stream="" if self.parallel else code)
            for code, loss in zip(self.codes, self.loss, strict=True)
        ]

    @cached_property
    def resampled(self) -> np.ndarray:
        """ΔNLL per token, (draws, languages)."""
        parts = zip(self.loss, self.tokens, self.counts, strict=True)
        return np.stack([resampled_ratios(loss, tokens, counts) for loss, tokens, counts in parts], axis=1)

    def only(self, codes: Sequence[str]) -> Losses:
        """Of these languages alone."""
        places = [self.codes.index(code) for code in codes]
        return replace(
            self, codes=list(codes), loss=[self.loss[i] for i in places], tokens=[self.tokens[i] for i in places]
        )

    def centred(self) -> Losses:
        """The same noise with no difference between languages: every language's loss per token becomes the common mean."""
        common = self.per_token.mean()
        moved = [
            loss - (mean - common) * tokens
            for loss, tokens, mean in zip(self.loss, self.tokens, self.per_token, strict=True)
        ]
        return replace(self, loss=moved)

    def by_language(self) -> dict[str, Estimate]:
        """ΔNLL per token of each language."""
        return {
            code: _percentile(float(value), self.resampled[:, index])
            for index, (code, value) in enumerate(zip(self.codes, self.per_token, strict=True))
        }

    def mean(self) -> Estimate:
        """ΔNLL per token, the mean over languages."""
        return _percentile(float(self.per_token.mean()), self.resampled.mean(1))

    def worst(self) -> tuple[str, Estimate]:
        """The language that loses most, and the largest loss of any language."""
        value = float(self.per_token.max())
        low, high = basic_interval(value, self.resampled.max(1))
        return self.codes[int(self.per_token.argmax())], Estimate(value=value, low=low, high=high)

    def disparity(self) -> Estimate:
        """max D − min D, of which there must be at least two."""
        value = float(np.ptp(np.expm1(self.per_token)))
        low, high = basic_interval(value, np.ptp(np.expm1(self.resampled), axis=1))
        return Estimate(value=value, low=max(0.0, low), high=max(0.0, high))

    def difference(self, other: Losses, code: str) -> Estimate:
        """How much more one language loses here than in `other`."""
        here, there = self.codes.index(code), other.codes.index(code)
        value = float(self.per_token[here] - other.per_token[there])
        return _percentile(value, self.resampled[:, here] - other.resampled[:, there])

    def mean_difference(self, other: Losses) -> Estimate:
        """How much more the languages lose here than in `other`, on average."""
        value = float(self.per_token.mean() - other.per_token.mean())
        return _percentile(value, self.resampled.mean(1) - other.resampled.mean(1))

    def worst_difference(self, other: Losses) -> Estimate:
        """How much more the worst language loses here than the worst language of `other`, which may be another one."""
        value = float(self.per_token.max() - other.per_token.max())
        return _percentile(value, self.resampled.max(1) - other.resampled.max(1))

    def disparity_difference(self, other: Losses) -> Estimate:
        """How much larger max D − min D is here than in `other`."""
        value = float(np.ptp(np.expm1(self.per_token)) - np.ptp(np.expm1(other.per_token)))
        return _percentile(value, np.ptp(np.expm1(self.resampled), axis=1) - np.ptp(np.expm1(other.resampled), axis=1))


def _percentile(value: float, draws: np.ndarray) -> Estimate:
    low, high = percentile_interval(draws)
    return Estimate(value=value, low=low, high=high)
