"""What a quantized model loses, by language, against its original."""

from laaciq.evaluation.degradation import evaluate_measurements
from laaciq.evaluation.measurement import Measurement, measure
from laaciq.evaluation.results import Disparity, Estimate, Evaluation, LanguageResult, Summary

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
