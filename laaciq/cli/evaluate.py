"""`laaciq evaluate`: a quantized model made by anyone, against its original."""

from __future__ import annotations

from typing import Any

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.options import EvaluateOptions


@shared.takes(EvaluateOptions)
def evaluate(
    out: shared.Out = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **given: Any,
) -> None:
    """Measure what a quantized model loses in each language."""
    folder = shared.folder_for(EvaluateOptions, given, out)

    from laaciq.cli.tables import evaluation_table
    from laaciq.commands.evaluate import evaluate as evaluate_verb
    from laaciq.engine.progress import TerminalProgress

    evaluation = evaluate_verb(**given, out=folder, overwrite=overwrite, device=device, progress=TerminalProgress())
    if as_json:
        print_json(evaluation)
        return
    print_table(evaluation_table(evaluation))
    print_lines(f"Report: {folder / 'report.html'}")
