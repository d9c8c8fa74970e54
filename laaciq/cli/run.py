"""`laaciq run`: the whole chain in one command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from laaciq.cli.printing import print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.options import RunOptions

if TYPE_CHECKING:
    from laaciq.commands.run import RunResult


@calls_verb(RunOptions)
def run(result: RunResult, call: Call[RunOptions]) -> None:
    """Quantize a model, measure what each language loses, and write a report.

    If it is interrupted, the same command resumes. Workers measure the languages and round the baseline; planning stays in one process.
    """
    from laaciq.report.next_step import next_steps

    print_table(run_table(result))
    print_lines(f"Report: {call.out / 'report.html'}")
    size = result.plans.first.size.block_bits_per_weight
    settings = call.settings_for(RunOptions)
    lines = next_steps(result.evaluation, result.options, bits_per_weight=size, folder=call.out, settings=settings)
    print_lines(*lines)


def run_table(result: RunResult) -> RenderableType:
    """What a run measured, with its size and what was predicted."""
    from laaciq.cli.tables import evaluation_table, generation_table, size_sentence
    from laaciq.report.theory_section import relation_sentence, theory_lines
    from laaciq.report.wording import prediction_sentence, spread_sentence

    parts: list[RenderableType] = [evaluation_table(result.evaluation, result.baseline)]
    if result.generation is not None:
        parts.append(generation_table(result.generation))
    if (noise := result.numeric_noise) is not None:
        parts.append(
            Text(
                f"Numeric noise, {noise.precision} against {noise.other}: at most {noise.largest:.1e} nats per token "
                f"({noise.language})."
            )
        )
    if result.spread is not None:
        parts.append(Text(spread_sentence(result.spread)))
    parts.append(Text(prediction_sentence(result.screening)))
    parts += [Text(line) for line in theory_lines(result.theory)]
    if result.baseline_theory is not None:
        relations = " ".join(relation_sentence(r) for r in result.baseline_theory.relations if r.r is not None)
        parts += [Text(f"With the baseline: {relations}")] if relations else []
    return Group(*parts, Text(size_sentence(result.plans)))
