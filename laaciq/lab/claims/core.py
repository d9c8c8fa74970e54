"""The core result: languages that use outlier layers less degrade more."""

from __future__ import annotations

from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Finding, Points
from laaciq.lab.language_rules import correlation
from laaciq.lab.rules import Claimed

R_HAT = Claimed(statistic="r(R̂, D)", threshold=0.0, side="below", claimed=-0.834)
KAPPA = Claimed(statistic="r(κ_eff, D)", threshold=0.0, side="below", claimed=-0.838)


def against_loss(evidence: Evidence, quantity: str, label: str, claim: Claimed, losses: str = "rtn-4") -> Finding:
    """r of a quantity of the profile with D over languages."""
    table, degradation = evidence.table(losses)
    values = getattr(table, quantity)
    plot = Points(
        x=values.tolist(), y=degradation.tolist(), names=table.codes, x_label=label, y_label="D after 4-bit rounding"
    )
    return correlation(values, degradation, table.families, claim=claim, plot=plot)


def _outlier_fraction(evidence: Evidence) -> Finding:
    evidence.profile.require_outliers()
    return against_loss(evidence, "outlier_fraction", "outlier fraction R̂", R_HAT)


def _effective_kurtosis(evidence: Evidence) -> Finding:
    return against_loss(evidence, "effective_kurtosis", "effective kurtosis κ_eff", KAPPA)


CLAIMS = (
    Claim(
        "outlier-fraction",
        "Languages that activate outlier layers LESS degrade MORE: r(outlier_activation, degradation) = −0.834.",
        "Refined Theory, 1; Theoretical Framework, 3.4",
        ("profile", "rtn-4"),
        "r(R̂, D) over languages lies below 0.",
        _outlier_fraction,
    ),
    Claim(
        "effective-kurtosis",
        "D(λ) ∝ −κ_eff(λ), r = −0.838.",
        "Mathematical Summary, Disparity Analysis; Theoretical Framework, 2.4",
        ("profile", "rtn-4"),
        "r(κ_eff, D) over languages lies below 0.",
        _effective_kurtosis,
    ),
)
