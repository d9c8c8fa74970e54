"""Scoring text under a model: which tokens are scored, and their likelihood."""
