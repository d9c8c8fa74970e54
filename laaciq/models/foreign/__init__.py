"""Checkpoints quantized by other libraries, read without those libraries: one file per format, from stored tensors to weights."""

from laaciq.models.foreign.reader import ForeignFormat, find_format, missing_library, read_weights

__all__ = ["ForeignFormat", "find_format", "missing_library", "read_weights"]
