"""A claim of the theory: its words and place, what it needs, and the rule for its verdict, fixed before data are seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Finding


@dataclass(frozen=True)
class Claim:
    """`words` are the theory's, `place` is where it states them, `needs` names measurements, `rule` says when the claim counts as supported.

    `decide` is pure. It raises `Unanswered` if the evidence has no answer.
    """

    name: str
    words: str
    place: str
    needs: tuple[str, ...]
    rule: str
    decide: Callable[[Evidence], Finding]
