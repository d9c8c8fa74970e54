"""Losses of texts, and differences between two quantizations of one model on the same passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from laaciq.corpus import Texts
from laaciq.stats.estimate import Estimate
from laaciq.trials.losses import Losses


def losses_of(
    texts: Texts, loss: Mapping[str, Sequence[float]], tokens: Mapping[str, Sequence[int]], *, seed: int
) -> Losses:
    """By document, from losses and tokens by passage."""
    documents = {code: texts[code].documents for code in loss}
    return Losses.of(loss, tokens, documents, parallel=texts.parallel, seed=seed)


def by_language(losses: Losses) -> dict[str, Estimate]:
    return losses.by_language()


def mean_loss(losses: Losses) -> Estimate:
    return losses.mean()


def worst_loss(losses: Losses) -> tuple[str, Estimate]:
    return losses.worst()


def worst_difference(left: Losses, right: Losses) -> Estimate:
    return left.worst_difference(right)


def difference(left: Losses, right: Losses, code: str) -> Estimate:
    return left.difference(right, code)
