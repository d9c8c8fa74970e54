"""The theory's model of losses, and what it says about pairs of languages and about a single α."""

from __future__ import annotations

import numpy as np

from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence, ProfileTable
from laaciq.lab.findings import Finding, NotApplicable, Points
from laaciq.lab.language_rules import correlation, pair_correlation, prediction_gain
from laaciq.lab.layer_error import layer_error
from laaciq.lab.prediction import halves, held_out_predictions
from laaciq.lab.rules import Claimed

PREDICTED = Claimed(statistic="squared error removed", threshold=0.0, side="above", claimed=0.5)
RATIO = Claimed(statistic="r(|κ₁/κ₂ − 1|, |D₁ − D₂|)", threshold=0.0, side="above", claimed=0.838)
SUBOPTIMAL = Claimed(statistic="r((κ_eff − κ_global)², excess loss)", threshold=0.0, side="above", claimed=0.5)
_BITS = 4


def predicted_losses(table: ProfileTable, bits: int = _BITS) -> np.ndarray:
    """Σ_l ā_l(λ)·σ_l²·g(κ_l, B), by language, up to a factor."""
    return table.fractions @ (table.sigma**2 * [layer_error(float(kurtosis), bits) for kurtosis in table.kurtosis])


def _prediction(evidence: Evidence) -> Finding:
    table, degradation = evidence.table("rtn-4")
    features = predicted_losses(table)
    predicted, mean = held_out_predictions(features, degradation, halves(len(features)), intercept=False)
    plot = Points(x=predicted.tolist(), y=degradation.tolist(), names=table.codes, x_label="predicted D", y_label="D")
    return prediction_gain(degradation, predicted, mean, table.families, claim=PREDICTED, plot=plot)


def _pairs(evidence: Evidence, quantity: str) -> Finding:
    table, degradation = evidence.table("rtn-4")
    kurtosis = getattr(table, quantity)
    if (kurtosis <= 0).any():
        raise NotApplicable("a language has a κ of 0 or below", "a model with heavier tails, for a ratio of κ")
    larger, smaller = np.maximum.outer(kurtosis, kurtosis), np.minimum.outer(kurtosis, kurtosis)
    ratio, difference = larger / smaller - 1, np.abs(np.subtract.outer(degradation, degradation))
    upper = np.triu_indices(len(kurtosis), 1)
    plot = Points(
        x=ratio[upper].tolist(), y=difference[upper].tolist(), names=[""] * len(upper[0]),
        x_label="κ ratio of a pair, minus 1", y_label="difference of D",
    )  # fmt: skip
    return pair_correlation(ratio, difference, table.families, claim=RATIO, plot=plot)


def _suboptimality(evidence: Evidence) -> Finding:
    shared, own = evidence.losses("la-aciq-4"), evidence.losses("la-aciq-4-per-language")
    table = evidence.profile.only(shared.codes)
    excess = shared.per_token - own.only(shared.codes).per_token
    distance = (table.effective_kurtosis - table.effective_kurtosis.mean()) ** 2
    plot = Points(
        x=distance.tolist(), y=excess.tolist(), names=table.codes, x_label="(κ_eff − mean)²", y_label="excess ΔNLL of one α"
    )  # fmt: skip
    return correlation(distance, excess, table.families, claim=SUBOPTIMAL, plot=plot)


_NEEDS = ("profile", "rtn-4")
CLAIMS = (
    Claim(
        "loss-model",
        "D(λ) = Σ_l ā_l(λ) · σ_l² · g(α/σ_l, κ_l, B).",
        "Refined Theory, 4.3",
        _NEEDS,
        "With a factor fitted on half of the languages, it predicts D of the other half better than their mean: it removes more than 0 of the "
        "squared error.",
        _prediction,
    ),
    Claim(
        "kurtosis-ratio",
        "Disparity(ℓ₁, ℓ₂) ∝ |κ_ℓ₁/κ_ℓ₂ − 1|, r = +0.838.",
        "Theory Development, Theory 2",
        _NEEDS,
        "Over pairs of languages, r of the ratio of κ_eff (larger over smaller, minus 1) with the difference of D lies above 0.",
        lambda evidence: _pairs(evidence, "effective_kurtosis"),
    ),
    Claim(
        "effective-weights-ratio",
        "w_ℓ^eff = w ⊙ a_ℓ: the optimal clipping threshold is language-dependent, and disparity follows the ratio of κ(w_ℓ^eff).",
        "Theory Development, Theory 2",
        _NEEDS,
        "The same with κ of the effective weights w ⊙ a(λ), averaged over tensors.",
        lambda evidence: _pairs(evidence, "weights_kurtosis"),
    ),
    Claim(
        "suboptimality-quadratic",
        "Suboptimality of single α: MSE_actual(λ) − MSE_optimal(λ) ∝ (κ_eff(λ) − κ_global)².",
        "Mathematical Summary, LA-ACIQ Extension",
        ("profile", "la-aciq-4", "la-aciq-4-per-language"),
        "r of (κ_eff − mean)² with the excess loss of one α for all, over α = σ·f(κ_eff(λ)) for each language, lies above 0.",
        _suboptimality,
    ),
)
