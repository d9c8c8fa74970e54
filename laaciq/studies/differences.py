"""The worst language's loss, and differences between two quantizations of one model on the same passages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from laaciq.corpus import Texts
from laaciq.evaluation import Estimate
from laaciq.evaluation.degradation import DRAWS
from laaciq.evaluation.disparity import Losses
from laaciq.stats.bootstrap import basic_interval, document_counts, percentile_interval


def losses_of(
    texts: Texts, loss: Mapping[str, Sequence[float]], tokens: Mapping[str, Sequence[int]], *, seed: int
) -> Losses:
    """By document, from losses and tokens by passage. The same seed resamples the same documents: differences are paired."""
    codes = list(loss)
    found = Losses(codes, [], [], [])
    for code in codes:
        names, member = np.unique(texts[code].documents, return_inverse=True)
        found.loss.append(np.bincount(member, weights=loss[code]))
        found.tokens.append(np.bincount(member, weights=tokens[code]))
        found.counts.append(document_counts(len(names), draws=DRAWS, seed=seed, stream="" if texts.parallel else code))
    return found


def by_language(losses: Losses) -> dict[str, Estimate]:
    draws = losses.resampled()
    return {
        code: _percentile(float(value), draws[:, index])
        for index, (code, value) in enumerate(zip(losses.codes, losses.per_token, strict=True))
    }


def mean_loss(losses: Losses) -> Estimate:
    return _percentile(float(losses.per_token.mean()), losses.resampled().mean(1))


def worst_loss(losses: Losses) -> tuple[str, Estimate]:
    """The worst language and its loss; which one it is is found again in every draw."""
    value = float(losses.per_token.max())
    low, high = basic_interval(value, losses.resampled().max(1))
    return losses.codes[int(losses.per_token.argmax())], Estimate(value=value, low=low, high=high)


def worst_difference(left: Losses, right: Losses) -> Estimate:
    """How much more the worst language loses under `left`, each with a worst language of its own in every draw."""
    value = float(left.per_token.max() - right.per_token.max())
    return _percentile(value, left.resampled().max(1) - right.resampled().max(1))


def difference(left: Losses, right: Losses, code: str) -> Estimate:
    """How much more one language loses under `left`."""
    index = left.codes.index(code)
    value = float(left.per_token[index] - right.per_token[index])
    return _percentile(value, left.resampled()[:, index] - right.resampled()[:, index])


def _percentile(value: float, draws: np.ndarray) -> Estimate:
    low, high = percentile_interval(draws)
    return Estimate(value=value, low=low, high=high)
