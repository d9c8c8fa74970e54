"""Measurements of one language, passage by passage, from which every statistic is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from laaciq.corpus import Passages
from laaciq.engine.progress import Progress
from laaciq.models import LanguageModel
from laaciq.options import MeasureOptions
from laaciq.scoring.likelihood import Scores, bits_per_byte, nll_by_passage, score_each
from laaciq.scoring.sequences import ScoredPassage, prepare_all
from laaciq.strict import StrictModel

# A language is first measured on this many passages, and on no more if it is not served.
SERVED_PROBE = 8


class _Record(StrictModel):
    version: Literal[2] = 2


class PassageLosses(_Record):
    """One language under one model. Every list has one entry per passage; `nll` in nats, summed over the passage's scored tokens."""

    nll: list[float]
    tokens: list[int]
    bytes: list[int]

    @property
    def bits_per_byte(self) -> float:
        return bits_per_byte(sum(self.nll), sum(self.bytes))


class Measurement(_Record):
    """One language under the original and under a candidate. Every list has one entry per passage; losses in nats, summed over the passage's
    scored tokens. `kl` and `agreed` are None where the two models were not run side by side."""

    language: str
    served: bool
    documents: list[str]
    tokens: list[int]
    bytes: list[int]
    original_nll: list[float]
    quantized_nll: list[float]
    kl: list[float] | None
    agreed: list[int] | None

    @property
    def original_bits_per_byte(self) -> float:
        return bits_per_byte(sum(self.original_nll), sum(self.bytes))

    @property
    def loss(self) -> np.ndarray:
        """ΔNLL of every passage, in nats."""
        return np.array(self.quantized_nll) - np.array(self.original_nll)


def passage_losses(
    model: LanguageModel, prepared: list[ScoredPassage], *, advance: Callable[[int], None] = lambda tokens: None
) -> PassageLosses:
    """The losses of one language under one model. `advance` receives the scored tokens of every batch."""
    return PassageLosses(
        nll=nll_by_passage(model, prepared, advance=advance).tolist(),
        tokens=[passage.scored_tokens for passage in prepared],
        bytes=[passage.scored_bytes for passage in prepared],
    )


def paired(passages: Passages, original: PassageLosses, nll: Sequence[float], options: MeasureOptions) -> Measurement:
    """A measurement from separate passes of a candidate and the original over the same passages."""
    return Measurement(
        language=passages.language.code,
        served=original.bits_per_byte <= options.served_bound,
        documents=list(passages.documents),
        tokens=original.tokens,
        bytes=original.bytes,
        original_nll=original.nll,
        quantized_nll=list(nll),
        kl=None,
        agreed=None,
    )


def measure(
    original: LanguageModel,
    quantized: LanguageModel,
    passages: Passages,
    options: MeasureOptions,
    *,
    advance: Callable[[int], None] = lambda passages: None,
) -> Measurement:
    """One language's passages scored under both models. `advance` receives the number of passages that are done."""
    return measure_each(original, [quantized], passages, options, advance=advance)[0]


def measure_each(
    original: LanguageModel,
    quantized: Sequence[LanguageModel],
    passages: Passages,
    options: MeasureOptions,
    *,
    advance: Callable[[int], None] = lambda passages: None,
) -> list[Measurement]:
    """Like `measure`, for several quantized models beside one pass of the original."""
    # Spread over the text, to sample several documents.
    probe = range(0, len(passages), -(-len(passages) // SERVED_PROBE))
    first = _measure(original, quantized, passages.at(probe), options)
    advance(len(probe))
    if not first[0].served or len(probe) == len(passages):
        return first
    remaining = [position for position in range(len(passages)) if position not in probe]
    rest = _measure(original, quantized, passages.at(remaining), options)
    advance(len(remaining))
    return [_joined(*parts, options) for parts in zip(first, rest, strict=True)]


def measure_pooled(
    original: LanguageModel,
    quantized: LanguageModel,
    texts: Sequence[Passages],
    options: MeasureOptions,
    *,
    progress: Progress = Progress(),
) -> list[Measurement]:
    """Several languages in one pass, served or not: short texts then fill larger batches."""
    prepared = [prepare_all(original, passages, options) for passages in texts]
    pool = [passage for part in prepared for passage in part]
    with progress.stage("measuring", sum(passage.scored_tokens for passage in pool)) as advance:
        (scores,) = score_each(original, [quantized], pool, advance=advance)
    ends = np.cumsum([len(part) for part in prepared])
    return [
        _measurement(passages, part, scores.at(slice(end - len(part), end)), options)
        for passages, part, end in zip(texts, prepared, ends, strict=True)
    ]


def _joined(first: Measurement, rest: Measurement, options: MeasureOptions) -> Measurement:
    lists = {
        name: getattr(first, name) + getattr(rest, name)
        for name in Measurement.model_fields
        if isinstance(getattr(first, name), list)
    }
    whole = first.model_copy(update=lists)
    return whole.model_copy(update={"served": whole.original_bits_per_byte <= options.served_bound})


def _measure(
    original: LanguageModel, quantized: Sequence[LanguageModel], passages: Passages, options: MeasureOptions
) -> list[Measurement]:
    prepared = prepare_all(original, passages, options)
    return [_measurement(passages, prepared, scores, options) for scores in score_each(original, quantized, prepared)]


def _measurement(
    passages: Passages, prepared: list[ScoredPassage], scores: Scores, options: MeasureOptions
) -> Measurement:
    byte_counts = [passage.scored_bytes for passage in prepared]
    return Measurement(
        language=passages.language.code,
        served=bits_per_byte(scores.original_nll.sum(), sum(byte_counts)) <= options.served_bound,
        documents=list(passages.documents),
        tokens=scores.tokens.astype(int).tolist(),
        bytes=byte_counts,
        original_nll=scores.original_nll.tolist(),
        quantized_nll=scores.quantized_nll.tolist(),
        kl=scores.kl.tolist(),
        agreed=scores.agreed.astype(int).tolist(),
    )
