"""What was measured in one language, passage by passage: the raw material of every statistic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from laaciq.corpus import Passages
from laaciq.models import LanguageModel
from laaciq.options import MeasureOptions
from laaciq.scoring.likelihood import bits_per_byte, score_each
from laaciq.scoring.sequences import prepare_all

# A language is first measured on these many passages, and on no more if it turns out not to be served.
SERVED_PROBE = 8


class Measurement(BaseModel):
    """One language under two models. Every list has one entry a passage; losses in nats, summed over the passage's scored tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    language: str
    served: bool
    documents: list[str]
    tokens: list[int]
    bytes: list[int]
    original_nll: list[float]
    quantized_nll: list[float]
    kl: list[float]
    agreed: list[int]

    @property
    def original_bits_per_byte(self) -> float:
        return bits_per_byte(sum(self.original_nll), sum(self.bytes))


def measure(
    original: LanguageModel,
    quantized: LanguageModel,
    passages: Passages,
    options: MeasureOptions,
    *,
    advance: Callable[[int], None] = lambda passages: None,
) -> Measurement:
    """Score one language's passages under both models. `advance` is told the number of passages that are done."""
    return measure_each(original, [quantized], passages, options, advance=advance)[0]


def measure_each(
    original: LanguageModel,
    quantized: Sequence[LanguageModel],
    passages: Passages,
    options: MeasureOptions,
    *,
    advance: Callable[[int], None] = lambda passages: None,
) -> list[Measurement]:
    """As `measure`, for several quantized models beside one pass of the original."""
    # Spread over the text, so that the probe is not one document.
    probe = range(0, len(passages), -(-len(passages) // SERVED_PROBE))
    first = _measure(original, quantized, passages.at(probe), options)
    advance(len(probe))
    if not first[0].served or len(probe) == len(passages):
        return first
    remaining = [position for position in range(len(passages)) if position not in probe]
    rest = _measure(original, quantized, passages.at(remaining), options)
    advance(len(remaining))
    return [_joined(*parts, options) for parts in zip(first, rest, strict=True)]


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
    asked = {"window": options.window, "chat": options.chat, "seed": options.seed}
    prepared = prepare_all(original, passages.texts, passages.language, **asked)
    byte_counts = [passage.scored_bytes for passage in prepared]
    return [
        Measurement(
            language=passages.language.code,
            served=bits_per_byte(found.original_nll.sum(), sum(byte_counts)) <= options.served_bound,
            documents=list(passages.documents),
            tokens=found.tokens.astype(int).tolist(),
            bytes=byte_counts,
            original_nll=found.original_nll.tolist(),
            quantized_nll=found.quantized_nll.tolist(),
            kl=found.kl.tolist(),
            agreed=found.agreed.astype(int).tolist(),
        )
        for found in score_each(original, quantized, prepared)
    ]
