"""What users notice in continuations: do they stay in the language, are they garbled, do they repeat themselves? Each is compared on the same
prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from laaciq.corpus.identification import LanguageIdentifier
from laaciq.evaluation.garbled import garbled, repetition
from laaciq.stats.paired_shares import PairedMeans, PairedShares, corrected, paired_means, paired_shares
from laaciq.strict import LanguageCode, StrictModel


class ContinuedPrompt(StrictModel):
    """A prompt with its continuation by each model."""

    prompt: str
    original: str
    quantized: str


class Continuations(StrictModel):
    """All prompts of one language, and the script that they are in."""

    language: LanguageCode
    script: str
    prompts: list[ContinuedPrompt] = Field(min_length=1)


class GenerationResult(StrictModel):
    """One language. Shares are of the same prompts under both models: continuations that stay in the language (None if the identifier does not
    know it) and that are garbled. `repetition` is the mean share of a continuation that occurred before in it; `identical` counts prompts
    that both models continue alike. `example` is the first prompt that they do not.
    """

    language: LanguageCode
    prompts: int
    identical: int
    same_language: PairedShares | None
    garbled: PairedShares
    repetition: PairedMeans
    example: ContinuedPrompt


def compare_continuations(all_continuations: Sequence[Continuations]) -> list[GenerationResult]:
    """Every language; p-values are corrected for the number of languages, measure by measure."""
    identifier = LanguageIdentifier()
    results = [_compare(continuations, identifier) for continuations in all_continuations]
    known = iter(corrected([result.same_language for result in results if result.same_language is not None]))
    broken = corrected([result.garbled for result in results])
    return [
        result.model_copy(
            update={"garbled": share, "same_language": None if result.same_language is None else next(known)}
        )
        for result, share in zip(results, broken, strict=True)
    ]


def _compare(continuations: Continuations, identifier: LanguageIdentifier) -> GenerationResult:
    prompts, script = continuations.prompts, continuations.script
    texts = [prompt.original for prompt in prompts], [prompt.quantized for prompt in prompts]
    before, after = (identifier.stays(side, continuations.language, script) for side in texts)
    broken = [[garbled(text, script) for text in side] for side in texts]
    repeated = [[repetition(text) for text in side] for side in texts]
    different = [prompt for prompt in prompts if prompt.original != prompt.quantized]
    return GenerationResult(
        language=continuations.language,
        prompts=len(prompts),
        identical=len(prompts) - len(different),
        same_language=None if before is None or after is None else paired_shares(before, after),
        garbled=paired_shares(*broken),
        repetition=paired_means(*repeated),
        example=(different or prompts)[0],
    )
