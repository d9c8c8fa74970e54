"""Profiling: what is in a model's weights, and how each language uses them."""
