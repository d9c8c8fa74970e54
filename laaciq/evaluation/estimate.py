"""Time and memory of what a run may measure besides losses, estimated before a model is loaded."""

from __future__ import annotations

from dataclasses import replace

from laaciq.corpus import Texts
from laaciq.evaluation.generation import NEW_TOKENS
from laaciq.evaluation.numeric import PASSAGES
from laaciq.scoring.operations import Reading, forward
from laaciq.trials.estimate import CostModel, StageCost

# A wider type of numbers takes about twice the time and the memory.
_WIDER = 2


def generating(costs: CostModel, texts: Texts, *, prompts: int) -> StageCost:
    """Both models read half of each passage, and write one token per prompt and step."""
    few = texts.spread(prompts)
    halves = costs.read(few) * 0.5
    rows = sum(map(len, few.by_language.values()))
    # Every new token attends to its prompt and, on average, to half of the continuation.
    seen = halves.read + rows * NEW_TOKENS / 2
    step = Reading(tokens=rows, squares=seen, read=rows, targets=rows, batches=len(few.languages), decoded=rows)
    work = forward(costs.shape, halves, head=False) + forward(costs.shape, step) * NEW_TOKENS
    return costs.stage("generating", work * 2, models=2)


def numeric_check(costs: CostModel, texts: Texts) -> StageCost:
    """The original beside itself in a wider type."""
    stage = costs.measuring(texts.spread(PASSAGES), _WIDER)
    return replace(stage, name="numeric check", seconds=_WIDER * stage.seconds)
