"""Interventions on one part of a model at a time, measured by language."""

from laaciq.ablation.gateway import Gateway, gateway
from laaciq.ablation.losses import nll_by_passage, quantized_parts
from laaciq.ablation.sensitivity import Sensitivity, parts_of, sensitivity
from laaciq.ablation.sweep import Sweep, sweep

__all__ = [
    "Gateway",
    "Sensitivity",
    "Sweep",
    "gateway",
    "nll_by_passage",
    "parts_of",
    "quantized_parts",
    "sensitivity",
    "sweep",
]
