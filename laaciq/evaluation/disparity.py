"""Disparity between languages, and how much of it is noise.

The largest minus the smallest of many noisy values is large even if all languages are equal (37 equal ones give 4.3 standard errors). Its
interval allows for that (`laaciq.stats.extremes`), and decides alone whether languages differ beyond noise.
"""

from __future__ import annotations

import numpy as np

from laaciq.evaluation.results import Disparity
from laaciq.stats.estimate import Estimate
from laaciq.stats.extremes import LARGEST
from laaciq.stats.heterogeneity import between_deviation, exceedance_p
from laaciq.trials.losses import Losses


def degradation_of(loss: Estimate) -> Estimate:
    """D = exp(ΔNLL per token) − 1, with its interval."""
    # Two documents may give an upper end that no number can hold.
    value, low, high = (float(np.expm1(min(end, LARGEST))) for end in (loss.value, loss.low, loss.high))
    return Estimate(value=value, low=low, high=high)


def disparity_of(losses: Losses, *, seed: int, splits: int) -> Disparity:
    """Disparity of D over the given languages, at least two."""
    degradations, disparity = losses.degradations, losses.disparity()
    observed = degradations.values
    under_null = degradations.noise(losses.draws, seed).var(axis=1)
    worst_cross_fitted, disparity_cross_fitted = cross_fitted(losses, seed=seed, splits=splits)
    return Disparity(
        worst=degradation_of(losses.worst()[1]),
        plug_in=disparity.estimate,
        noise_floor=disparity.noise_floor,
        cross_fitted=disparity_cross_fitted,
        cross_fitted_worst=worst_cross_fitted,
        between_deviation=between_deviation(observed, degradations.covariance),
        heterogeneity_p=exceedance_p(float(observed.var()), under_null),
        worst_language=losses.codes[int(observed.argmax())],
        best_language=losses.codes[int(observed.argmin())],
    )


def cross_fitted(losses: Losses, *, seed: int, splits: int) -> tuple[float, float]:
    """D of the worst language, and max D − min D. Languages are chosen on one half of the documents and estimated on the other."""
    first, second = _halves(losses, seed, splits)
    chosen, estimated = np.concatenate([first, second]), np.expm1(np.concatenate([second, first]))
    worst = np.take_along_axis(estimated, chosen.argmax(1)[:, None], 1)
    best = np.take_along_axis(estimated, chosen.argmin(1)[:, None], 1)
    return float(worst.mean()), float((worst - best).mean())


def _halves(losses: Losses, seed: int, splits: int) -> tuple[np.ndarray, np.ndarray]:
    """Loss per token on two random halves, (splits, languages). Languages with equally many documents use the same halves."""
    first, second = [], []
    for by_draw, tokens in zip(losses.loss, losses.tokens, strict=True):
        loss = by_draw.mean(0)
        random = np.random.default_rng([seed, len(loss)])
        half = random.random((splits, len(loss))).argsort(1) < len(loss) // 2
        first.append((half @ loss) / (half @ tokens))
        second.append((~half @ loss) / (~half @ tokens))
    return np.stack(first, axis=1), np.stack(second, axis=1)
