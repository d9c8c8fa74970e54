"""`laaciq evaluate`: a quantized model made by anyone, against its original."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laaciq.cli.printing import print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.options import EvaluateOptions

if TYPE_CHECKING:
    from laaciq.evaluation.results import Evaluation


@calls_verb(EvaluateOptions)
def evaluate(result: Evaluation, call: Call[EvaluateOptions]) -> None:
    """Measure what a quantized model loses in each language."""
    from laaciq.cli.tables import evaluation_table

    print_table(evaluation_table(result))
    print_lines(f"Report: {call.out / 'report.html'}")
