"""Disparity between languages, told apart from noise.

The largest minus the smallest of many noisy values is large even if all languages are equal (37 equal ones give 4.3 standard errors), so the
plug-in value never stands alone: a noise floor, a cross-fitted value and a heterogeneity test stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laaciq.evaluation.results import Disparity, Estimate
from laaciq.stats.bootstrap import LEVEL, basic_interval, resampled_ratios
from laaciq.stats.heterogeneity import between_deviation, exceedance_p


@dataclass(frozen=True)
class Losses:
    """Loss and tokens by document, and the bootstrap's counts, for each language. Parallel texts share their counts."""

    codes: list[str]
    loss: list[np.ndarray]
    tokens: list[np.ndarray]
    counts: list[np.ndarray]

    @property
    def per_token(self) -> np.ndarray:
        return np.array([loss.sum() / tokens.sum() for loss, tokens in zip(self.loss, self.tokens, strict=True)])

    def resampled(self) -> np.ndarray:
        """Loss per token, (draws, languages)."""
        parts = zip(self.loss, self.tokens, self.counts, strict=True)
        return np.stack([resampled_ratios(loss, tokens, counts) for loss, tokens, counts in parts], axis=1)

    def centred(self) -> Losses:
        """The same noise with no difference between languages: every language's loss per token becomes the common mean."""
        common = self.per_token.mean()
        moved = [
            loss - (own - common) * tokens
            for loss, tokens, own in zip(self.loss, self.tokens, self.per_token, strict=True)
        ]
        return Losses(self.codes, moved, self.tokens, self.counts)

    def cross_fitted(self, *, seed: int, splits: int) -> tuple[float, float]:
        """D of the worst language and max D − min D, chosen on one half of the documents, estimated on the other."""
        first, second = self._halves(seed, splits)
        chosen, estimated = np.concatenate([first, second]), np.expm1(np.concatenate([second, first]))
        worst = np.take_along_axis(estimated, chosen.argmax(1)[:, None], 1)
        best = np.take_along_axis(estimated, chosen.argmin(1)[:, None], 1)
        return float(worst.mean()), float((worst - best).mean())

    def _halves(self, seed: int, splits: int) -> tuple[np.ndarray, np.ndarray]:
        """Loss per token on two random halves, (splits, languages); the same halves where languages have as many documents."""
        first, second = [], []
        for loss, tokens in zip(self.loss, self.tokens, strict=True):
            random = np.random.default_rng([seed, len(loss)])
            half = random.random((splits, len(loss))).argsort(1) < len(loss) // 2
            first.append((half @ loss) / (half @ tokens))
            second.append((~half @ loss) / (~half @ tokens))
        return np.stack(first, axis=1), np.stack(second, axis=1)


def disparity_of(losses: Losses, *, seed: int, splits: int) -> Disparity:
    """Disparity of D over the given languages, of which there must be at least two."""
    observed = np.expm1(losses.per_token)
    draws = np.expm1(losses.resampled())
    null = np.expm1(losses.centred().resampled())
    plug_in = float(np.ptp(observed))
    floor = float(np.quantile(np.ptp(null, axis=1), LEVEL))
    low, high = basic_interval(plug_in, np.ptp(draws, axis=1))
    # A model measured against itself has no variance at all.
    variances = np.maximum(null.var(axis=0), 1e-24)
    cross_fitted_worst, cross_fitted = losses.cross_fitted(seed=seed, splits=splits)
    return Disparity(
        plug_in=Estimate(value=plug_in, low=max(0.0, low), high=max(0.0, high)),
        cross_fitted=cross_fitted,
        cross_fitted_worst=cross_fitted_worst,
        noise_floor=floor,
        beyond_noise=plug_in > floor,
        between_deviation=between_deviation(observed, variances),
        heterogeneity_p=exceedance_p(float(observed.var()), null.var(axis=1)),
        worst_language=losses.codes[int(observed.argmax())],
        best_language=losses.codes[int(observed.argmin())],
    )
