"""`laaciq evaluate`: a quantized model made by anyone, against its original."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laaciq.cli.measuring import measures
from laaciq.cli.printing import print_lines, print_table
from laaciq.options import EvaluateOptions

if TYPE_CHECKING:
    from pathlib import Path

    from laaciq.evaluation.results import Evaluation


@measures(EvaluateOptions)
def evaluate(result: Evaluation, folder: Path) -> None:
    """Measure what a quantized model loses in each language."""
    from laaciq.cli.tables import evaluation_table

    print_table(evaluation_table(result))
    print_lines(f"Report: {folder / 'report.html'}")
