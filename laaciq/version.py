"""The version of this package, for results and checkpoints that record it."""

__version__ = "0.1.0"
