"""Putting text to a model: which tokens it is scored on, and how likely it finds them."""
