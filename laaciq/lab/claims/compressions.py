"""Across compressions: the same claims under magnitude pruning, made as lossy as rounding to 4 bits on average."""

from __future__ import annotations

import numpy as np

from laaciq.lab.claim import Claim
from laaciq.lab.claims.core import KAPPA, R_HAT, against_loss
from laaciq.lab.document_halves import half_of, require_halves
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Finding, Points
from laaciq.lab.language_rules import correlation, disparity_ratio
from laaciq.lab.rules import Claimed

SAME_LANGUAGES = Claimed(statistic="r(D pruned, D quantized)", threshold=0.5, side="above", claimed=0.8)
SAME_DISPARITY = Claimed(statistic="disparity pruned, over that quantized", threshold=1.5, side="within", claimed=1.0)
_STATISTIC = "pruned: {}"


def _outlier_fraction(evidence: Evidence) -> Finding:
    evidence.profile.require_outliers()
    claim = Claimed(**{**R_HAT, "statistic": _STATISTIC.format(R_HAT["statistic"])})
    return against_loss(evidence, "outlier_fraction", "outlier fraction R̂", claim, losses="pruned")


def _effective_kurtosis(evidence: Evidence) -> Finding:
    claim = Claimed(**{**KAPPA, "statistic": _STATISTIC.format(KAPPA["statistic"])})
    return against_loss(evidence, "effective_kurtosis", "effective kurtosis κ_eff", claim, losses="pruned")


def _same_languages(evidence: Evidence) -> Finding:
    """Each side on documents of its own: the original's losses are part of both, and their noise would make both alike."""
    losses = evidence.losses("rtn-4")
    table = evidence.profile.only(losses.codes)
    require_halves(losses)
    quantized = np.expm1(half_of(losses, 0).per_token)
    pruned = np.expm1(half_of(evidence.losses("pruned").only(losses.codes), 1).per_token)
    plot = Points(
        x=quantized.tolist(), y=pruned.tolist(), names=table.codes, x_label="D, rounded to 4 bits", y_label="D, pruned"
    )  # fmt: skip
    return correlation(quantized, pruned, table.families, claim=SAME_LANGUAGES, plot=plot)


def _same_disparity(evidence: Evidence) -> Finding:
    sides = evidence.losses("pruned"), evidence.losses("rtn-4")
    return disparity_ratio(*sides, claim=SAME_DISPARITY, names=("pruned", "rounded to 4 bits"))


_WORDS, _PLACE = "Generalize to other compression methods", "Theory Development, Phase 3"
_NEEDS = ("profile", "rtn-4", "pruned")
CLAIMS = (
    Claim(
        "pruning-outlier-fraction",
        f"{_WORDS}: languages that activate outlier layers less degrade more.",
        _PLACE,
        ("profile", "pruned"),
        "After pruning, r(R̂, D) over languages lies below 0.",
        _outlier_fraction,
    ),
    Claim(
        "pruning-effective-kurtosis",
        f"{_WORDS}: D(λ) ∝ −κ_eff(λ).",
        _PLACE,
        ("profile", "pruned"),
        "After pruning, r(κ_eff, D) over languages lies below 0.",
        _effective_kurtosis,
    ),
    Claim(
        "pruning-hurts-the-same",
        f"{_WORDS}: low-redundancy representations cannot absorb the loss, whatever takes the bits.",
        _PLACE,
        _NEEDS,
        "Languages that lose more by rounding lose more by pruning, on other documents: r lies above 0.5.",
        _same_languages,
    ),
    Claim(
        "pruning-same-disparity",
        f"{_WORDS}: disparity follows from redundancy, not from the kind of compression.",
        _PLACE,
        ("rtn-4", "pruned"),
        "At equal mean loss, disparity after pruning lies between two thirds of that after rounding and one and a half times it.",
        _same_disparity,
    ),
)
