"""From measurements to an `Evaluation`. Definitions: `docs/statistics.md`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from laaciq.corpus import language
from laaciq.errors import BrokenTexts
from laaciq.evaluation.disparity import degradation_of, disparity_of
from laaciq.evaluation.results import Evaluation, LanguageResult, Likelihood, Summary
from laaciq.evaluation.verdict import verdict
from laaciq.scoring.likelihood import bits_per_byte
from laaciq.stats.estimate import LEVEL, Estimate
from laaciq.stats.multiplicity import benjamini_hochberg
from laaciq.trials.losses import DRAWS, Losses
from laaciq.trials.measurement import Measurement

COLLAPSE_FACTOR = 10
CROSS_FIT_SPLITS = 200


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
    for m in measurements:
        if m.served and len(set(m.documents)) < 2:
            raise BrokenTexts(f"{m.language} has only one document, and an interval needs two: give more passages")
    losses = _losses(measurements, lambda m: m.tokens, parallel=parallel, seed=seed, draws=draws)
    relative = _losses(measurements, lambda m: m.original_nll, parallel=parallel, seed=seed)
    by_passage = _losses(measurements, lambda m: np.full(len(m.tokens), np.log(2)), parallel=parallel, seed=seed)
    loss, relative_bits, bits = (of_all.by_language() for of_all in (losses, relative, by_passage))
    p = dict(zip(losses.codes, losses.joint.p_values(), strict=True)) if losses.codes else {}
    results = _corrected(
        [
            _language_result(
                m,
                loss.get(m.language),
                relative_bits.get(m.language),
                bits.get(m.language),
                p.get(m.language),
                parallel,
            )
            for m in measurements
        ]
    )
    judged = [r.language for r in results if r.judged]
    disparity = None
    if len(judged) > 1:
        disparity = disparity_of(losses.only(judged), seed=seed, splits=CROSS_FIT_SPLITS)
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


def _losses(
    measurements: list[Measurement],
    denominators: Callable[[Measurement], ArrayLike],
    *,
    parallel: bool,
    seed: int,
    draws: int = DRAWS,
) -> Losses:
    """ΔNLL over what `denominators` gives by passage, in the languages that have at least two documents."""
    several = [m for m in measurements if len(set(m.documents)) > 1]
    return Losses.of(
        {m.language: m.loss for m in several},
        {m.language: denominators(m) for m in several},
        {m.language: m.documents for m in several},
        parallel=parallel,
        seed=seed,
        draws=draws,
    )


def _language_result(
    measured: Measurement,
    loss: Estimate | None,
    relative: Estimate | None,
    bits: Estimate | None,
    p: float | None,
    parallel: bool,
) -> LanguageResult:
    """Estimates and p are None for one document, whose noise nobody knows: the value stands alone."""
    spoken = language(measured.language)
    tokens, byte_count, nats = sum(measured.tokens), sum(measured.bytes), float(measured.loss.sum())
    loss = loss or _without_interval(nats / tokens)
    bits = bits or _without_interval(nats / np.log(2) / len(measured.tokens))
    collapsed = loss.value > np.log(COLLAPSE_FACTOR)
    return LanguageResult(
        language=spoken.code,
        name=spoken.name,
        script=spoken.script,
        passages=len(measured.tokens),
        documents=len(set(measured.documents)),
        tokens=tokens,
        bytes=byte_count,
        original=_likelihood(sum(measured.original_nll), tokens, byte_count),
        quantized=_likelihood(sum(measured.quantized_nll), tokens, byte_count),
        loss=loss,
        degradation=None if collapsed else degradation_of(loss),
        relative_bits=relative or _without_interval(nats / sum(measured.original_nll)),
        bits_per_passage=bits if parallel else None,
        kl_per_token=sum(measured.kl or ()) / tokens,
        top_agreement=sum(measured.agreed or ()) / tokens,
        served=measured.served,
        collapsed=collapsed,
        p=None if p is None else float(p),
        hurt=loss.low > 0,
        hurt_corrected=False,
    )


def _corrected(results: list[LanguageResult]) -> list[LanguageResult]:
    """With `hurt_corrected`: Benjamini and Hochberg's correction over the languages that are served."""
    tested = {r.language: r.p for r in results if r.served and r.p is not None}
    if not tested:
        return results
    adjusted = dict(zip(tested, benjamini_hochberg(list(tested.values())), strict=True))
    return [
        r.model_copy(update={"hurt_corrected": r.hurt and bool(adjusted.get(r.language, 1.0) < 1 - LEVEL)})
        for r in results
    ]


def _without_interval(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value)


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
        hurt_corrected_share=sum(r.hurt_corrected for r in served) / len(served) if served else None,
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
