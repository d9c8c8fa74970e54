"""Shares of the same items before and after quantization, as cells of a table and as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from laaciq.report.numbers import ABSENT, number
from laaciq.stats.estimate import Estimate
from laaciq.stats.paired_shares import PairedMeans, PairedShares

# Below any table of paired shares.
FOOT = (
    "Both models have the same items. Differences are quantized − original in percentage points, with 95 % intervals "
    "(Bonett and Price's for shares, Student's for means). p is McNemar's mid-p, corrected for the number of languages "
    "(Benjamini and Hochberg); a change is beyond noise if p is below 0.05."
)


def before_after(pair: PairedShares | PairedMeans | None) -> str:
    """`94 → 88 %`; a question mark if it was not measured."""
    return "?" if pair is None else f"{number(100 * pair.original, 0)} → {number(100 * pair.quantized, 0)} %"


def points(difference: Estimate | None) -> str:
    """`-6 [-18, 5]`, in percentage points."""
    if difference is None:
        return ABSENT
    value, low, high = (number(100 * end, 0) for end in (difference.value, difference.low, difference.high))
    return f"{value} [{low}, {high}]"


def p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def changes(subject: str, pairs: Sequence[tuple[str, PairedShares]], *, more: str, less: str) -> str:
    """One sentence on which languages changed beyond noise: `more` and `less` say in words which way."""
    rose = [name for name, pair in pairs if pair.changed and pair.difference.value > 0]
    fell = [name for name, pair in pairs if pair.changed and pair.difference.value < 0]
    parts = [f"{word} in {', '.join(names)}" for word, names in ((more, rose), (less, fell)) if names]
    count = f"{len(pairs)} language{'s' * (len(pairs) != 1)}"
    return f"{subject}: {'; '.join(parts) if parts else f'no change beyond noise in {count}'}."
