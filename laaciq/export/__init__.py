"""Exports: our checkpoints in the formats of other runtimes."""
