"""Quantizing: grids, methods, packing, and the checkpoint that holds the result."""

from laaciq.quantization.checkpoint import apply_checkpoint, write_checkpoint
from laaciq.quantization.methods import METHODS, find_method

__all__ = ["METHODS", "apply_checkpoint", "find_method", "write_checkpoint"]
