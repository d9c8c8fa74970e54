"""The theory's remedies, each against its baseline at equal size: less disparity, or less loss where quality is what is claimed?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Finding
from laaciq.lab.language_rules import disparity_ratio, mean_loss_ratio
from laaciq.lab.rules import Claimed

# A claim of "about 50 %" is held against half of it; power is for the full 50 %.
HALVED = Claimed(statistic="disparity ratio", threshold=0.75, side="below", claimed=0.5)
# The theory gives no size; power is for a fifth less.
LESS = Claimed(statistic="disparity ratio", threshold=1.0, side="below", claimed=0.8)
LESS_LOST = Claimed(statistic="mean loss ratio", threshold=1.0, side="below", claimed=0.8)


def against(evidence: Evidence, name: str, baseline: str, claim: Claimed) -> Finding:
    """Disparity of a candidate over that of its baseline."""
    return disparity_ratio(evidence.losses(name), evidence.losses(baseline), claim=claim, names=(name, baseline))


def less_lost(evidence: Evidence, name: str, baseline: str, claim: Claimed) -> Finding:
    """Mean ΔNLL of a candidate over that of its baseline."""
    return mean_loss_ratio(evidence.losses(name), evidence.losses(baseline), claim=claim, names=(name, baseline))


def _compared(
    name: str,
    words: str,
    place: str,
    rule: str,
    candidate: str,
    baseline: str,
    claim: Claimed = LESS,
    compare: Callable[..., Finding] = against,
) -> Claim:
    decide = partial(compare, name=candidate, baseline=baseline, claim=claim)
    return Claim(name, words, place, ("profile", candidate, baseline), rule, decide)


CLAIMS = (
    _compared(
        "outlier-blocks-at-8-bits",
        "If layers 5,21,22 use INT8 while rest uses INT4: disparity should decrease by ~50 %.",
        "Refined Theory, 5.2",
        "Disparity with outlier blocks at 8 bits, over that with all at 4, lies below 0.75 (half of the claimed decrease).",
        "outliers-8",
        "rtn-4",
        HALVED,
    ),
    _compared(
        "language-aware-clipping",
        "Per-language α reduces disparity: Disparity(LA-ACIQ) < Disparity(ACIQ).",
        "Mathematical Summary, Prediction 1",
        "Disparity of LA-ACIQ, α = σ·f(κ_eff(λ), 4) for each language, over that of ACIQ lies below 1.",
        "la-aciq-4-per-language",
        "aciq-4",
    ),
    _compared(
        "per-language-calibration",
        "A. Per-language calibration: α*(λ) = calibrate(model, data_λ). Expected result: reduced disparity at same bit-width.",
        "Mathematical Summary, Calibration Strategies; Theoretical Framework, 6.2",
        "Disparity with grids fitted to each language's inputs, over that with grids fitted to all, lies below 1.",
        "effective-4-per-language",
        "effective-4",
    ),
    _compared(
        "mixed-precision",
        "B. Layer-wise mixed precision: bits(l) = 8 if κ_l > τ else 4.",
        "Mathematical Summary, Calibration Strategies",
        "Disparity with 8 bits where κ_l > 50, over that of a uniform grid of at least the same size, lies below 1.",
        "outliers-8",
        "rtn-as-outliers-8",
    ),
    _compared(
        "adaptive-scales",
        "C. Adaptive (input-dependent): α*(x) = α*(detect_language(x)).",
        "Mathematical Summary, Calibration Strategies",
        "Disparity with a table of scales per cluster of languages, over that of finer groups of at least the same size, lies below 1.",
        "adaptive-4",
        "effective-as-adaptive-4",
    ),
    _compared(
        "five-eight-four",
        "Instead of uniform INT4: top 5 % weights: FP16; attention projections: INT8; everything else: INT4.",
        "Phase 4, Mixed-Precision Strategy",
        "Mean ΔNLL of this mixture, over that of a uniform grid of at least the same size, lies below 1.",
        "mixed",
        "rtn-as-mixed",
        LESS_LOST,
        less_lost,
    ),
    _compared(
        "keep-five-percent",
        "For INT4 quantization with acceptable quality: preserve top 5-10 % of weights in FP16.",
        "Phase 4, Actionable Threshold",
        "Mean ΔNLL at 4 bits with the top 5 % in 16 bits, over that of a uniform grid of at least the same size, lies below 1.",
        "keep-5",
        "rtn-as-keep-5",
        LESS_LOST,
        less_lost,
    ),
)
