"""Honest statistics, as pure functions on arrays."""
