"""Training data: do languages with more of it use outlier layers more, and lose less?"""

from __future__ import annotations

from laaciq.lab.claim import Claim
from laaciq.lab.claims.core import against_loss
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Finding, Points
from laaciq.lab.language_rules import correlation
from laaciq.lab.rules import Claimed

ON_FRACTION = Claimed(statistic="r(training tokens, R̂)", threshold=0.5, side="above", claimed=0.8)
ON_KURTOSIS = Claimed(statistic="r(training tokens, κ_eff)", threshold=0.0, side="above", claimed=0.5)
ON_LOSS = Claimed(statistic="r(training tokens, D)", threshold=0.0, side="below", claimed=-0.5)


def _against_exposure(evidence: Evidence, quantity: str, label: str, claim: Claimed) -> Finding:
    table = evidence.profile
    table.require_exposure()
    values = getattr(table, quantity)
    plot = Points(
        x=table.exposure.tolist(), y=values.tolist(), names=table.codes, x_label="training tokens", y_label=label
    )
    return correlation(table.exposure, values, table.families, claim=claim, plot=plot)


def _fraction(evidence: Evidence) -> Finding:
    evidence.profile.require_outliers()
    return _against_exposure(evidence, "outlier_fraction", "outlier fraction R̂", ON_FRACTION)


def _kurtosis(evidence: Evidence) -> Finding:
    return _against_exposure(evidence, "effective_kurtosis", "effective kurtosis κ_eff", ON_KURTOSIS)


def _loss(evidence: Evidence) -> Finding:
    evidence.profile.require_exposure()
    return against_loss(evidence, "exposure", "training tokens", ON_LOSS)


CLAIMS = (
    Claim(
        "exposure-outlier-fraction",
        "Languages with more training data have higher outlier activation: r(training_tokens(λ), ā_outlier(λ)) > 0.5.",
        "Refined Theory, 5.3",
        ("profile",),
        "r(training tokens, R̂) lies above 0.5.",
        _fraction,
    ),
    Claim(
        "exposure-effective-kurtosis",
        "Training data volume → κ_eff: more data → higher outlier activation → higher κ_eff.",
        "Mathematical Summary, Prediction 3",
        ("profile",),
        "r(training tokens, κ_eff) lies above 0.",
        _kurtosis,
    ),
    Claim(
        "exposure-loss",
        "Low-resource languages → low outlier activation → low redundancy → high quantization sensitivity.",
        "Theoretical Framework, 8",
        ("profile", "rtn-4"),
        "r(training tokens, D) lies below 0.",
        _loss,
    ),
)
