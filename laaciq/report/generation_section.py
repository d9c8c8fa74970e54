"""Continuations of the same prompts by both models: rows and sentences of every report."""

from __future__ import annotations

from collections.abc import Sequence

from laaciq.corpus.languages import language
from laaciq.evaluation.continuations import GenerationResult
from laaciq.report.numbers import ABSENT
from laaciq.report.paired_cells import before_after, changes, p_value, points

HEADS = (
    *("language", "prompts", "identical", "in the language", "difference", "p"),
    *("garbled", "difference", "p", "repeated", "difference"),
)


def cells(result: GenerationResult) -> list[str]:
    """Of a language, under `HEADS`."""
    same, broken, repeated = result.same_language, result.garbled, result.repetition
    return [
        f"{result.language} {language(result.language).name}",
        str(result.prompts),
        str(result.identical),
        before_after(same),
        points(None if same is None else same.difference),
        ABSENT if same is None else p_value(same.p_corrected),
        before_after(broken),
        points(broken.difference),
        p_value(broken.p_corrected),
        before_after(repeated),
        points(repeated.difference),
    ]


def sentences(results: Sequence[GenerationResult]) -> list[str]:
    """Which languages changed beyond noise, by measure."""
    named = [(language(result.language).name, result) for result in results]
    same = [(name, result.same_language) for name, result in named if result.same_language is not None]
    lines = [changes("In the language", same, more="more", less="less")] if same else []
    lines.append(changes("Garbled", [(name, result.garbled) for name, result in named], more="more", less="less"))
    if unknown := [name for name, result in named if result.same_language is None]:
        lines.append(f"The identifier does not know {', '.join(unknown)}.")
    return lines


def examples(result: GenerationResult) -> list[tuple[str, str]]:
    """A prompt and how both models continue it, with labels."""
    example = result.example
    return [
        (f"{language(result.language).name}, prompt", example.prompt),
        ("original", example.original),
        ("quantized", example.quantized),
    ]
