"""`laaciq evaluate`: a quantized model made by anyone, against its original."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from laaciq.cli import options as shared
from laaciq.cli.measuring import measures
from laaciq.options import EvaluateOptions

if TYPE_CHECKING:
    from pathlib import Path

    from laaciq.evaluation.results import Evaluation


@measures(EvaluateOptions)
def evaluate(result: Evaluation, folder: Path) -> None:
    """Measure what a quantized model loses in each language."""
    from laaciq.cli.tables import evaluation_table

    Console().print(evaluation_table(result))
    shared.print_lines(f"Report: {folder / 'report.html'}")
