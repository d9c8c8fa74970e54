"""Checkpoints that other libraries quantized, read without them: one file for each format, from stored tensors to weights."""

from laaciq.models.foreign.reader import ForeignFormat, find_format, missing_library, read_weights

__all__ = ["ForeignFormat", "find_format", "missing_library", "read_weights"]
