"""What a quantized model loses, by language, against its original."""

from laaciq.evaluation.degradation import evaluate_measurements
from laaciq.evaluation.results import Disparity, Estimate, Evaluation, LanguageResult, Summary
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
