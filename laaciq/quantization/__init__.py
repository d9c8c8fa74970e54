"""Quantization: grids, thresholds, kept weights, packing, tables, and the checkpoint that stores the result."""

from typing import TYPE_CHECKING

from laaciq.lazy import lazy_names

if TYPE_CHECKING:
    from laaciq.quantization.calibration import Calibration
    from laaciq.quantization.checkpoint import apply_checkpoint, is_checkpoint, read_plan, write_checkpoint
    from laaciq.quantization.matrices import quantize_matrix

__all__ = ["Calibration", "apply_checkpoint", "is_checkpoint", "quantize_matrix", "read_plan", "write_checkpoint"]

_CHECKPOINT = ("apply_checkpoint", "is_checkpoint", "read_plan", "write_checkpoint")
__getattr__ = lazy_names(
    __name__,
    dict.fromkeys(_CHECKPOINT, "laaciq.quantization.checkpoint")
    | {"Calibration": "laaciq.quantization.calibration", "quantize_matrix": "laaciq.quantization.matrices"},
)
