"""New model screening: what the largest kurtosis of a block says about disparity."""

from __future__ import annotations

from laaciq.evaluation.theory import CLAIMED, GAUSSIAN_KURTOSIS, NEGLIGIBLE
from laaciq.lab.claim import Claim
from laaciq.lab.claims.core import against_loss
from laaciq.lab.evidence import Evidence, ProfileTable
from laaciq.lab.findings import Bars, Finding, NotApplicable
from laaciq.lab.language_rules import disparity_over
from laaciq.lab.rules import Claimed

# Disparity that the theory itself calls one: its only observed value.
DISPARITY = 0.020
NONE = Claimed(statistic="disparity", threshold=DISPARITY, side="below", claimed=DISPARITY / 4)
NO_PATTERN = Claimed(statistic="r(κ_eff, D)", threshold=NEGLIGIBLE, side="within", claimed=0.0)
STRONG = Claimed(statistic="r(R̂, D)", threshold=CLAIMED, side="below", claimed=-0.834)


def require_gaussian(table: ProfileTable) -> None:
    if table.max_kurtosis >= GAUSSIAN_KURTOSIS:
        raise NotApplicable(
            f"max κ is {table.max_kurtosis:.2f}", f"a model whose blocks all have κ below {GAUSSIAN_KURTOSIS:g}"
        )


def disparity_at(evidence: Evidence, name: str, claim: Claimed, note: str = "") -> Finding:
    losses = evidence.losses(name)
    found = losses.disparity()
    plot = Bars(names=[name], values=[found.estimate], label="disparity, max D − min D")
    beside = f"Noise alone explains up to {found.noise_floor:.3f}. {note}".strip()
    return disparity_over(losses, 1.0, claim=claim, plot=plot, note=beside)


def _no_disparity(evidence: Evidence) -> Finding:
    require_gaussian(evidence.profile)
    return disparity_at(evidence, "rtn-4", NONE)


def _no_correlation(evidence: Evidence) -> Finding:
    require_gaussian(evidence.profile)
    return against_loss(evidence, "effective_kurtosis", "effective kurtosis κ_eff", NO_PATTERN)


def _strong_correlation(evidence: Evidence) -> Finding:
    evidence.profile.require_outliers()
    return against_loss(evidence, "outlier_fraction", "outlier fraction R̂", STRONG)


_PLACE = "Refined Theory, 5.4"
CLAIMS = (
    Claim(
        "no-outliers-no-disparity",
        "Any model with max κ < 5 will show no disparity pattern.",
        "Refined Theory, 3.2",
        ("profile", "rtn-4"),
        "If max κ < 5: disparity at 4 bits lies below 0.020, the value that the theory calls a disparity.",
        _no_disparity,
    ),
    Claim(
        "no-outliers-no-correlation",
        "If max κ_l(M) < 5: Expect |r(ā_outlier, D)| < 0.3.",
        _PLACE,
        ("profile", "rtn-4"),
        "If max κ < 5: r(κ_eff, D) lies between −0.3 and 0.3. (R̂ is 0 for every language where no layer is an outlier.)",
        _no_correlation,
    ),
    Claim(
        "outliers-correlate",
        "If max κ_l(M) > 50: Expect r(ā_outlier, D) < −0.5.",
        _PLACE,
        ("profile", "rtn-4"),
        "If max κ > 50: r(R̂, D) lies below −0.5.",
        _strong_correlation,
    ),
)
