"""Quantizing: grids, thresholds, kept weights, packing, tables, and the checkpoint that holds the result."""

from laaciq.quantization.calibration import Calibration
from laaciq.quantization.checkpoint import apply_checkpoint, is_checkpoint, read_plan, write_checkpoint
from laaciq.quantization.matrices import quantize_matrix

__all__ = ["Calibration", "apply_checkpoint", "is_checkpoint", "quantize_matrix", "read_plan", "write_checkpoint"]
