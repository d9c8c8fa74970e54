"""Interventions on a model, one part at a time or in the text that it is calibrated on, measured by language."""

from laaciq.ablation.calibration import calibration_study
from laaciq.ablation.calibration_results import CalibrationStudy
from laaciq.ablation.gateway import Gateway, gateway
from laaciq.ablation.losses import nll_by_passage, quantized_parts
from laaciq.ablation.sensitivity import Sensitivity, parts_of, sensitivity
from laaciq.ablation.sweep import Sweep, sweep

__all__ = [
    "CalibrationStudy",
    "Gateway",
    "Sensitivity",
    "Sweep",
    "calibration_study",
    "gateway",
    "nll_by_passage",
    "parts_of",
    "quantized_parts",
    "sensitivity",
    "sweep",
]
