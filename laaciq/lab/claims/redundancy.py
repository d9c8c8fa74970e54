"""Redundancy and alignment: Theory 1 and Theorem 3."""

from __future__ import annotations

import numpy as np

from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence, ProfileTable
from laaciq.lab.findings import Finding, NotApplicable, Points
from laaciq.lab.language_rules import correlation
from laaciq.lab.rules import Claimed

LINEAR = Claimed(statistic="r(1/R, D)", threshold=0.0, side="above", claimed=0.8)
ALIGNED = Claimed(statistic="r(A, D)", threshold=0.0, side="below", claimed=-0.5)


def with_known(table: ProfileTable, outcome: np.ndarray, *quantities: str) -> tuple[ProfileTable, np.ndarray]:
    """The languages in which these quantities are known; English has no alignment with itself."""
    known = np.array([code != "eng" or "alignment" not in quantities for code in table.codes])
    for quantity in quantities:
        known &= np.isfinite(getattr(table, quantity))
    if not known.any():
        raise NotApplicable(
            f"{' and '.join(quantities)} could not be measured", "parallel texts with English, and more passages"
        )
    return table.only([code for code, there in zip(table.codes, known, strict=True) if there]), outcome[known]


def _linear(evidence: Evidence) -> Finding:
    table, degradation = with_known(*evidence.table("rtn-4"), "redundancy")
    if (table.redundancy <= 0).any():
        raise NotApplicable("redundancy is not positive in some language", "more text, for 1/R")
    x = 1 / table.redundancy
    plot = Points(x=x.tolist(), y=degradation.tolist(), names=table.codes, x_label="1/R", y_label="D")
    return correlation(x, degradation, table.families, claim=LINEAR, plot=plot)


def _aligned(evidence: Evidence) -> Finding:
    table, degradation = with_known(*evidence.table("rtn-4"), "alignment")
    plot = Points(
        x=table.alignment.tolist(), y=degradation.tolist(), names=table.codes, x_label="alignment A", y_label="D"
    )
    return correlation(table.alignment, degradation, table.families, claim=ALIGNED, plot=plot)


CLAIMS = (
    Claim(
        "redundancy-inverse",
        "Quantization error is bounded by ε_ℓ ≤ C/(R_ℓ + δ). Plot ε vs 1/R — should be linear.",
        "Theory Development, Theory 1",
        ("profile", "rtn-4"),
        "r(1/R, D) lies above 0, with R the spectral redundancy of the last block. (The bound itself holds for some C whatever the data.)",
        _linear,
    ),
    Claim(
        "alignment-monotone",
        "If A_ℓ₁ > A_ℓ₂, then D_ℓ₁ < D_ℓ₂ under any uniform quantization.",
        "Theory Development, Theorem 3",
        ("profile", "rtn-4"),
        "r(A, D) lies below 0, with A the mean centred cosine with English over blocks.",
        _aligned,
    ),
)
