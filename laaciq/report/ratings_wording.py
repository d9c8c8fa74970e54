"""What people prefer, in words."""

from __future__ import annotations

from laaciq.evaluation.ratings import Ratings
from laaciq.report.paired_cells import p_value, points
from laaciq.stats.paired_shares import LEVEL

FOOT = (
    "A pair counts once, by the majority of its raters. Shares have Wilson's 95 % intervals; net is original − quantized, with Bonett "
    "and Price's. p is that of the sign test (mid-p) on pairs that are no ties; by language it is corrected for their number (Benjamini "
    "and Hochberg)."
)


def overall_sentence(ratings: Ratings) -> str:
    """One sentence on all languages together."""
    overall, alike = ratings.overall, sum(ratings.identical.values())
    numbers = f"{points(overall.original)} % of {overall.pairs} pairs against {points(overall.quantized)} %"
    if overall.p >= LEVEL:
        verdict = "No preference beyond noise"
    else:
        verdict = f"People prefer the {'original' if overall.net.value > 0 else 'quantized model'}"
    more = f" Both models continued {alike} more prompts alike; these are not counted." if alike else ""
    return f"{verdict}: the original is better in {numbers} for the quantized model, sign test p = {p_value(overall.p)}.{more}"
