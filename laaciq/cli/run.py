"""`laaciq run`: the whole chain in one command."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, REFERENCE, RunOptions


@shared.options_of(RunOptions)
def run(
    model: shared.Model = REFERENCE,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    out: shared.Out = None,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Quantize a model, measure what each language loses, and write a report. Run again, it resumes."""
    # Heavy imports wait until a command needs them, so that --help answers at once.
    from laaciq.cli.tables import evaluation_table, generation_table, size_sentence
    from laaciq.commands.run import run_chain
    from laaciq.engine.progress import TerminalProgress
    from laaciq.report.wording import prediction_sentence

    chosen = RunOptions.of(model=model, texts=texts, **shared.read_values(options, languages))
    folder = out or chosen.default_folder
    result = run_chain(chosen, out=folder, device=device, progress=TerminalProgress())
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
        return
    console = Console()
    console.print(evaluation_table(result.evaluation, result.baseline))
    if result.generation is not None:
        console.print(generation_table(result.generation))
    if (noise := result.numeric_noise) is not None:
        console.print(
            f"Numeric noise, {noise.precision} against {noise.other}: at most {noise.largest:.1e} nats a token ({noise.language}).",
            highlight=False,
        )
    console.print(prediction_sentence(result.screening), highlight=False)
    console.print(size_sentence(result.plans), highlight=False)
    console.print(f"Report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
    console.print(f"Next: laaciq check {folder} --max-D 0.05 --max-disparity 0.03", soft_wrap=True, highlight=False)
