"""`laaciq run`: the whole chain in one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.options import RunOptions

if TYPE_CHECKING:
    from laaciq.commands.run import RunResult


@shared.takes(RunOptions)
def run(
    out: shared.Out = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **given: Any,
) -> None:
    """Quantize a model, measure what each language loses, and write a report.

    Run again, it resumes.
    """
    folder = shared.folder_for(RunOptions, given, out)

    # Heavy imports wait until options are known to be right, so that --help and errors come at once.
    from laaciq.commands.run import run as run_verb
    from laaciq.engine.progress import TerminalProgress
    from laaciq.report.next_step import next_steps

    result = run_verb(**given, out=folder, overwrite=overwrite, device=device, progress=TerminalProgress())
    if as_json:
        print_json(result)
        return
    print_table(run_table(result))
    print_lines(f"Report: {folder / 'report.html'}")
    size = result.plans.first.size.block_bits_per_weight
    print_lines(*next_steps(result.evaluation, result.options, bits_per_weight=size, folder=folder))


def run_table(result: RunResult) -> RenderableType:
    """What a run measured, with its size and what was predicted."""
    from laaciq.cli.tables import evaluation_table, generation_table, size_sentence
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
    return Group(*parts, Text(size_sentence(result.plans)))
