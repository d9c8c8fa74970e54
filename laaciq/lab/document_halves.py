"""Losses on one half of the documents: what is chosen on one half is judged on the other, and two sides share no noise."""

from __future__ import annotations

from dataclasses import replace

from laaciq.lab.findings import TooFew
from laaciq.trials.losses import Losses


def half_of(losses: Losses, half: int) -> Losses:
    """Every other document of each language, from the first (0) or the second (1) on."""
    return replace(
        losses,
        documents=[names[half::2] for names in losses.documents],
        loss=[loss[:, half::2] for loss in losses.loss],
        tokens=[tokens[half::2] for tokens in losses.tokens],
    )


def require_halves(losses: Losses) -> None:
    """One document has no spread."""
    fewest = min(len(set(names[half::2])) for names in losses.documents for half in (0, 1))
    if fewest < 2:
        raise TooFew(f"half of a language's documents are {fewest}", "at least 4 documents per language")
