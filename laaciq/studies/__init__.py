"""Interventions on a model, one part at a time or in the text that it is calibrated on, measured by language."""

from laaciq.studies.gateway import Gateway, gateway
from laaciq.studies.losses import nll_by_passage, quantized_parts
from laaciq.studies.mixture import mixture_study
from laaciq.studies.mixture_results import MixtureStudy
from laaciq.studies.sensitivity import Sensitivity, parts_of, sensitivity
from laaciq.studies.sweep import Sweep, sweep

__all__ = [
    "Gateway",
    "MixtureStudy",
    "Sensitivity",
    "Sweep",
    "gateway",
    "mixture_study",
    "nll_by_passage",
    "parts_of",
    "quantized_parts",
    "sensitivity",
    "sweep",
]
