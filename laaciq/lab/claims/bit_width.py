"""The bit width at which disparity emerges, of the model and by language."""

from __future__ import annotations

import numpy as np

from laaciq.evaluation.theory import GAUSSIAN_KURTOSIS
from laaciq.lab.claim import Claim
from laaciq.lab.claims.screening import DISPARITY, disparity_at
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Bars, Finding, NotApplicable, Points
from laaciq.lab.language_rules import correlation
from laaciq.lab.rules import Claimed
from laaciq.options import BITS, OUTLIER_KURTOSIS

AT_FOUR = Claimed(statistic="disparity at 4 bits", threshold=DISPARITY, side="below", claimed=DISPARITY / 4)
AT_FIVE = Claimed(statistic="disparity at 5 bits", threshold=DISPARITY, side="above", claimed=4 * DISPARITY)
BY_LANGUAGE = Claimed(statistic="r(log κ_eff, B_threshold)", threshold=0.0, side="above", claimed=0.5)
# Widths at which most languages lose something; D that a language tolerates.
FITTED_BITS, TOLERATED = (2, 3, 4, 5), 0.05
# Smaller losses per token are noise, and have no logarithm.
_LEAST = 1e-4


def critical_width(evidence: Evidence) -> int | None:
    """B*, the largest width such that, there and at every smaller one, the interval of disparity lies above 0."""
    largest = None
    for bits in BITS:
        if evidence.losses(f"rtn-{bits}").disparity().estimate.low <= 0:
            break
        largest = bits
    return largest


def _model(evidence: Evidence) -> Finding:
    largest = evidence.profile.max_kurtosis
    if GAUSSIAN_KURTOSIS <= largest <= OUTLIER_KURTOSIS:
        raise NotApplicable(
            f"max κ is {largest:.2f}", "a model with max κ below 5 or above 50, for which the theory gives a B*"
        )
    name, claim = ("rtn-4", AT_FOUR) if largest < GAUSSIAN_KURTOSIS else ("rtn-5", AT_FIVE)
    found = critical_width(evidence)
    words = "no width" if found is None else f"{found} bits"
    finding = disparity_at(evidence, name, claim, f"Disparity is beyond noise up to {words}.")
    names = [f"rtn-{bits}" for bits in BITS]
    values = [evidence.losses(candidate).disparity().estimate for candidate in names]
    plot = Bars(names=names, values=values, label="disparity, max D − min D")
    return finding.model_copy(update={"plot": plot})


def threshold_bits(losses: np.ndarray, bits: np.ndarray, tolerated: float) -> np.ndarray:
    """The width at which a language loses `tolerated`, from a line through log ΔNLL against bits. `losses` are (bits, languages)."""
    logarithms = np.log(np.maximum(losses, _LEAST))
    centred = bits - bits.mean()
    slope = centred @ logarithms / (centred @ centred)
    return bits.mean() + (np.log(np.log1p(tolerated)) - logarithms.mean(0)) / slope


def _by_language(evidence: Evidence) -> Finding:
    table, _ = evidence.table("rtn-4")
    if (table.effective_kurtosis <= 0).any():
        raise NotApplicable("κ_eff is not positive in some language", "a model with heavier tails, for log κ_eff")
    losses = np.stack([evidence.losses(f"rtn-{bits}").per_token for bits in FITTED_BITS])
    needed = threshold_bits(losses, np.array(FITTED_BITS, dtype=float), TOLERATED)
    x = np.log(table.effective_kurtosis)
    plot = Points(x=x.tolist(), y=needed.tolist(), names=table.codes, x_label="log κ_eff", y_label="bits for D = 5 %")
    return correlation(x, needed, table.families, claim=BY_LANGUAGE, plot=plot)


_ALL = tuple(f"rtn-{bits}" for bits in BITS)
CLAIMS = (
    Claim(
        "critical-bits",
        "Critical bit-width B* where disparity emerges: B* = f(max κ). κ=164: B* ≈ 5-6 bits; κ=2: B* ≈ 2-3 bits.",
        "Refined Theory, 5.1",
        ("profile", *_ALL),
        "If max κ < 5, so that B* ≤ 3: disparity at 4 bits lies below 0.020. If max κ > 50, "
        "so that B* ≥ 5: disparity at 5 bits lies above 0.020.",
        _model,
    ),
    Claim(
        "bits-by-language",
        "Bit-width threshold correlates with κ_eff: B_threshold(λ) ∝ log(κ_eff(λ)).",
        "Mathematical Summary, Prediction 2",
        ("profile", *(f"rtn-{bits}" for bits in FITTED_BITS)),
        "r(log κ_eff, B_threshold) lies above 0, where B_threshold is the width at which D = 5 %, from a line through log ΔNLL at 2 to 5 bits.",
        _by_language,
    ),
)
