"""Answers of two models to the same items of tasks: which were right before and are wrong now, by language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from laaciq.corpus.languages import language
from laaciq.engine.display import Displayed
from laaciq.errors import BadOption, UnknownLanguage
from laaciq.stats.paired_shares import PairedShares, corrected, paired_shares
from laaciq.strict import LanguageCode, StrictModel

# How names of tasks end: a code of two letters (xnli_sw), a code with its script (belebele_swh_Latn), or a code in a task of ours.
_ENDINGS = (
    re.compile(r"[_-]([a-z]{2})$"),
    re.compile(r"[_-]([a-z]{3})_[A-Z][a-z]{3}$"),
    re.compile(r"^laaciq_[a-z]+_([a-z]{3})$"),
)


@dataclass(frozen=True)
class Answer:
    """One item: `content` identifies its text, whatever its place in the task."""

    content: str
    right: bool


# By item.
Answers = Mapping[int, Answer]


class TaskResult(StrictModel):
    """One task. `accuracy` counts items that went from right to wrong as `lost`, from wrong to right as `gained`. `language` is None if the
    task's name does not end with one.
    """

    task: str
    language: LanguageCode | None
    name: str
    accuracy: PairedShares


class TaskResults(Displayed, StrictModel):
    """All tasks that both models answered, by language. `left_out` names tasks that do not have the metric."""

    original: str
    quantized: str
    metric: str
    tasks: list[TaskResult]
    left_out: list[str]


def compare_answers(
    original: Mapping[str, Answers],
    quantized: Mapping[str, Answers],
    *,
    names: tuple[str, str],
    metric: str,
    left_out: list[str],
) -> TaskResults:
    """Pair the answers of both models, task by task. Raises an error unless both answered the same items."""
    for here, there, lacking in ((original, quantized, names[1]), (quantized, original, names[0])):
        if alone := sorted(here.keys() - there.keys()):
            raise BadOption(f"{lacking} has no answers to {', '.join(alone)}: run the same tasks on both models")
    if not original:
        raise BadOption(f"{names[0]} has no task with the metric {metric!r}: give another --metric")
    compared = corrected([_paired(task, original[task], quantized[task]) for task in sorted(original)])
    tasks = [_result(task, accuracy) for task, accuracy in zip(sorted(original), compared, strict=True)]
    return TaskResults(original=names[0], quantized=names[1], metric=metric, tasks=tasks, left_out=left_out)


def language_of(task: str) -> tuple[LanguageCode | None, str]:
    """Code and name of the language that the task's name ends with; None and the task's name if it ends with none."""
    bare = task.partition(",")[0]
    for ending in _ENDINGS:
        if match := ending.search(bare):
            try:
                found = language(match.group(1))
            except UnknownLanguage:
                continue
            return found.code, found.name
    return None, task


def _result(task: str, accuracy: PairedShares) -> TaskResult:
    code, name = language_of(task)
    return TaskResult(task=task, language=code, name=name, accuracy=accuracy)


def _paired(task: str, original: Answers, quantized: Answers) -> PairedShares:
    same = original.keys() == quantized.keys()
    if not same or any(original[item].content != quantized[item].content for item in original):
        raise BadOption(
            f"the two models did not answer the same items of {task}: run both with the same version of the task and the same --limit"
        )
    items = sorted(original)
    return paired_shares([original[item].right for item in items], [quantized[item].right for item in items])
