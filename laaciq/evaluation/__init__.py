"""Evaluation: what a quantized model loses in each language."""

from typing import TYPE_CHECKING

from laaciq.evaluation.results import Disparity, Estimate, Evaluation, LanguageResult, Summary
from laaciq.lazy import lazy_names

if TYPE_CHECKING:
    from laaciq.evaluation.degradation import evaluate_measurements
    from laaciq.trials.measurement import Measurement, measure

__all__ = [
    "Disparity",
    "Estimate",
    "Evaluation",
    "LanguageResult",
    "Measurement",
    "Summary",
    "evaluate_measurements",
    "measure",
]

__getattr__ = lazy_names(
    __name__,
    {
        "evaluate_measurements": "laaciq.evaluation.degradation",
        "Measurement": "laaciq.trials.measurement",
        "measure": "laaciq.trials.measurement",
    },
)
