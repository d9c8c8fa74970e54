"""Checkpoints that other libraries quantized, read without them: one file for each format, from stored tensors to weights."""

from laaciq.models.foreign.reader import Format, find_format, missing_library, read_weights

__all__ = ["Format", "find_format", "missing_library", "read_weights"]
