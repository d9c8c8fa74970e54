"""From measurements to an `Evaluation`. Definitions: `docs/statistics.md`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laaciq.corpus import language
from laaciq.errors import BrokenTexts
from laaciq.evaluation.disparity import disparity_of
from laaciq.evaluation.results import Evaluation, LanguageResult, Likelihood, Summary
from laaciq.evaluation.verdict import verdict
from laaciq.scoring.likelihood import bits_per_byte
from laaciq.stats.estimate import Estimate
from laaciq.stats.ratio import ratio_estimate
from laaciq.trials.losses import DRAWS, Losses
from laaciq.trials.measurement import Measurement

COLLAPSE_FACTOR = 10
CROSS_FIT_SPLITS = 200


@dataclass(frozen=True)
class _Documents:
    """A measurement summed by document, because passages of one document are not independent."""

    loss: np.ndarray
    tokens: np.ndarray
    original: np.ndarray
    passages: np.ndarray

    @classmethod
    def of(cls, measured: Measurement) -> _Documents:
        names, member = np.unique(measured.documents, return_inverse=True)

        def sums(values: np.ndarray) -> np.ndarray:
            return np.bincount(member, weights=values, minlength=len(names))

        return cls(
            loss=sums(measured.loss),
            tokens=sums(np.array(measured.tokens)),
            original=sums(np.array(measured.original_nll)),
            passages=sums(np.ones(len(member))),
        )


def evaluate_measurements(
    measurements: list[Measurement],
    *,
    original: str,
    quantized: str,
    texts: str,
    parallel: bool,
    served_bound: float,
    seed: int = 0,
    draws: int = DRAWS,
) -> Evaluation:
    """The `Evaluation` of the measurements, with intervals."""
    if not measurements:
        raise BrokenTexts("no language was measured: give texts in at least one language")
    documents = {m.language: _Documents.of(m) for m in measurements}
    for m in measurements:
        if m.served and len(documents[m.language].loss) < 2:
            raise BrokenTexts(f"{m.language} has only one document, and an interval needs two: give more passages")
    results = [_language_result(m, documents[m.language], parallel) for m in measurements]
    judged = {r.language for r in results if r.judged}
    losses = Losses.of(
        {m.language: m.loss for m in measurements if m.language in judged},
        {m.language: m.tokens for m in measurements},
        {m.language: m.documents for m in measurements},
        parallel=parallel,
        seed=seed,
        draws=draws,
    )
    disparity = disparity_of(losses, seed=seed, splits=CROSS_FIT_SPLITS) if len(judged) > 1 else None
    summary = _summary(results, measurements)
    return Evaluation(
        original=original,
        quantized=quantized,
        texts=texts,
        parallel=parallel,
        served_bound=served_bound,
        languages=results,
        disparity=disparity,
        summary=summary,
        verdict=verdict(results, disparity, summary),
    )


def _language_result(measured: Measurement, sums: _Documents, parallel: bool) -> LanguageResult:
    spoken = language(measured.language)
    tokens, byte_count = sum(measured.tokens), sum(measured.bytes)
    loss = ratio_estimate(sums.loss, sums.tokens)
    passage = ratio_estimate(sums.loss / np.log(2), sums.passages)
    collapsed = loss.value > np.log(COLLAPSE_FACTOR)
    return LanguageResult(
        language=spoken.code,
        name=spoken.name,
        script=spoken.script,
        passages=len(measured.tokens),
        documents=len(sums.loss),
        tokens=tokens,
        bytes=byte_count,
        original=_likelihood(sum(measured.original_nll), tokens, byte_count),
        quantized=_likelihood(sum(measured.quantized_nll), tokens, byte_count),
        loss=loss,
        degradation=None if collapsed else _degradation(loss),
        relative_bits=ratio_estimate(sums.loss, sums.original),
        bits_per_passage=passage if parallel else None,
        kl_per_token=sum(measured.kl or ()) / tokens,
        top_agreement=sum(measured.agreed or ()) / tokens,
        served=measured.served,
        collapsed=collapsed,
        hurt=loss.low > 0,
    )


def _degradation(loss: Estimate) -> Estimate:
    # Two documents may make an upper end that no number can hold.
    value, low, high = (float(np.expm1(min(end, 700.0))) for end in (loss.value, loss.low, loss.high))
    return Estimate(value=value, low=low, high=high)


def _likelihood(nats: float, tokens: int, byte_count: int) -> Likelihood:
    per_token = nats / tokens
    return Likelihood(
        nll_per_token=per_token,
        perplexity=float(np.exp(min(per_token, 700.0))),
        bits_per_byte=float(bits_per_byte(nats, byte_count)),
    )


def _summary(results: list[LanguageResult], measurements: list[Measurement]) -> Summary:
    judged = sorted((r for r in results if r.judged), key=lambda r: -r.loss.value)
    quarter = judged[: -(-len(judged) // 4)]
    served = [r for r in results if r.served]
    worst_by = {"degradation": judged[0].language} if judged else {}
    for measure in ("relative_bits", "bits_per_passage"):
        values = {r.language: e.value for r in judged if (e := getattr(r, measure)) is not None}
        if values:
            worst_by[measure] = max(values, key=lambda code: values[code])
    return Summary(
        mean=_mean_degradation(judged),
        worst_quarter=_mean_degradation(quarter),
        worst_quarter_languages=[r.language for r in quarter],
        hurt_share=sum(r.hurt for r in served) / len(served) if served else None,
        half_loss_passage_share=_half_loss_share(measurements),
        collapsed=[r.language for r in served if r.collapsed],
        not_served=[r.language for r in results if not r.served],
        rankings_agree=len(set(worst_by.values())) <= 1,
        worst_by=worst_by,
    )


def _mean_degradation(results: list[LanguageResult]) -> float | None:
    return float(np.expm1(np.mean([r.loss.value for r in results]))) if results else None


def _half_loss_share(measurements: list[Measurement]) -> float | None:
    """Smallest share of passages, over all served languages, that accounts for half of all losses; gains are ignored."""
    served = [m for m in measurements if m.served]
    if not served:
        return None
    losses = np.concatenate([m.loss for m in served])
    positive = np.sort(losses[losses > 0])[::-1]
    if not len(positive):
        return None
    needed = int(np.searchsorted(np.cumsum(positive), positive.sum() / 2)) + 1
    return needed / len(losses)
