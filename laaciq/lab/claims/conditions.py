"""The necessary conditions of disparity, each removed by intervention: outlier layers (C1), activation that varies (C2), few bits (C3).

Outliers are planted and removed at the same function, so that κ alone changes: what follows is its effect.
"""

from __future__ import annotations

import numpy as np

from laaciq.lab.claim import Claim
from laaciq.lab.claims.screening import DISPARITY
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Bars, Finding, NotApplicable, Points
from laaciq.lab.language_rules import correlation, disparity_over, disparity_ratio, mean_loss_ratio
from laaciq.lab.measurements.interventions import outlier_places
from laaciq.lab.rules import Claimed
from laaciq.planning.screening import ScreeningThresholds

# "Disparity ≈ 0": less than a quarter of what it is with all three conditions.
_GONE = 0.25


def _removed(words: str) -> Claimed:
    return Claimed(statistic=f"disparity {words}", threshold=_GONE, side="below", claimed=_GONE / 5)


NO_OUTLIERS = _removed("without outliers, over that with them")
USED_ALIKE = _removed("with outliers in the block used most alike, over that used most unlike")
MANY_BITS = _removed("at 8 bits, over that at 4")
CAUSES = Claimed(statistic="disparity with outliers, over that without", threshold=1.0, side="above", claimed=2.0)
RAISES = Claimed(statistic="mean ΔNLL with outliers, over that without", threshold=1.0, side="above", claimed=2.0)
ENOUGH = Claimed(statistic="disparity with planted outliers", threshold=DISPARITY, side="above", claimed=2 * DISPARITY)
PATTERN = Claimed(statistic="r(R̂, D) with planted outliers", threshold=-0.5, side="below", claimed=-0.834)
ENDS = Claimed(
    statistic="disparity with the end blocks at 8 bits, over that with middle ones", threshold=1.0, side="below", claimed=0.75
)  # fmt: skip


def _planted_fraction(evidence: Evidence) -> np.ndarray:
    """R̂ of the blocks where outliers are planted. Rescaling leaves activations as they are."""
    table, _ = evidence.table("planted-4")
    return table.fractions[:, outlier_places(len(table.kurtosis))].sum(axis=1)


def _no_outliers(evidence: Evidence) -> Finding:
    sides = evidence.losses("equalised-4"), evidence.losses("planted-4")
    return disparity_ratio(*sides, claim=NO_OUTLIERS, names=("κ as small as possible", "κ = 150 in three blocks"))


def _used_alike(evidence: Evidence) -> Finding:
    sides = evidence.losses("planted-alike"), evidence.losses("planted-unlike")
    return disparity_ratio(*sides, claim=USED_ALIKE, names=("used most alike", "used most unlike"))


def _many_bits(evidence: Evidence) -> Finding:
    sides = evidence.losses("planted-8"), evidence.losses("planted-4")
    return disparity_ratio(*sides, claim=MANY_BITS, names=("8 bits", "4 bits"))


def _causes(evidence: Evidence) -> Finding:
    sides = evidence.losses("planted-4"), evidence.losses("equalised-4")
    return disparity_ratio(*sides, claim=CAUSES, names=("κ = 150 in three blocks", "κ as small as possible"))


def _raises(evidence: Evidence) -> Finding:
    sides = evidence.losses("planted-4"), evidence.losses("equalised-4")
    return mean_loss_ratio(*sides, claim=RAISES, names=("κ = 150 in three blocks", "κ as small as possible"))


def _enough(evidence: Evidence) -> Finding:
    spread, least = float(np.ptp(_planted_fraction(evidence))), ScreeningThresholds().outlier_fraction_range
    if spread < least:
        raise NotApplicable(
            f"C2 fails: R̂ of the planted blocks differs by {spread:.3f} between languages",
            f"a model where it differs by {least:g}",
        )
    losses = evidence.losses("planted-4")
    plot = Bars(names=["planted"], values=[losses.disparity().estimate], label="disparity, max D − min D")
    return disparity_over(losses, 1.0, claim=ENOUGH, plot=plot)


def _pattern(evidence: Evidence) -> Finding:
    table, degradation = evidence.table("planted-4")
    fraction = _planted_fraction(evidence)
    plot = Points(
        x=fraction.tolist(), y=degradation.tolist(), names=table.codes, x_label="R̂ of the planted blocks", y_label="D"
    )  # fmt: skip
    return correlation(fraction, degradation, table.families, claim=PATTERN, plot=plot)


def _ends(evidence: Evidence) -> Finding:
    sides = evidence.losses("ends-8"), evidence.losses("middle-8")
    return disparity_ratio(*sides, claim=ENDS, names=("first and last block at 8 bits", "two middle blocks at 8 bits"))


_PLACE = "Refined Theory, 2.3"
_WORDS = "For quantization disparity to occur, model must satisfy"
CLAIMS = (
    Claim(
        "outliers-necessary",
        f"{_WORDS} (C1): outlier layers exist. If any condition fails, disparity ≈ 0.",
        _PLACE,
        ("equalised-4", "planted-4"),
        "Where κ is made as small as the same function allows, disparity lies below a quarter of that with planted outliers.",
        _no_outliers,
    ),
    Claim(
        "varying-use-necessary",
        f"{_WORDS} (C2): activation varies. If any condition fails, disparity ≈ 0.",
        _PLACE,
        ("profile", "planted-alike", "planted-unlike"),
        "With outliers in the block that languages use most alike, disparity lies below a quarter of that with outliers in the block "
        "that they use most unlike.",
        _used_alike,
    ),
    Claim(
        "few-bits-necessary",
        f"{_WORDS} (C3): B < B_safe. If any condition fails, disparity ≈ 0.",
        _PLACE,
        ("planted-8", "planted-4"),
        "With planted outliers, disparity at 8 bits lies below a quarter of that at 4 bits.",
        _many_bits,
    ),
    Claim(
        "conditions-sufficient",
        "C1, C2 and C3 hold: predicted disparity HIGH.",
        "Refined Theory, 3.1",
        ("profile", "planted-4"),
        "With planted outliers in blocks whose R̂ differs by 0.02 or more, disparity at 4 bits lies above 0.020.",
        _enough,
    ),
    Claim(
        "outliers-cause-disparity",
        "Outliers cause disparity.",
        "Phase 4 Findings, Confirmed",
        ("planted-4", "equalised-4"),
        "Planting outliers at the same function raises disparity at 4 bits: the ratio lies above 1.",
        _causes,
    ),
    Claim(
        "outliers-raise-loss",
        "Outlier layers are more sensitive to quantization: high κ means more clipping error for fixed α.",
        "Refined Theory, 2.2, M3",
        ("planted-4", "equalised-4"),
        "Planting outliers at the same function raises the mean loss at 4 bits: the ratio lies above 1.",
        _raises,
    ),
    Claim(
        "planted-outliers-correlate",
        "If max κ_l(M) > 50: Expect r(ā_outlier, D) < −0.5.",
        "Refined Theory, 5.4",
        ("profile", "planted-4"),
        "With planted outliers, r(R̂, D) over languages lies below −0.5.",
        _pattern,
    ),
    Claim(
        "ends-need-bits",
        "Any disparity-minimizing protection scheme must include the first and last layers.",
        "Theory Development, Theorem 2",
        ("ends-8", "middle-8"),
        "At 4 bits, 8 bits in the first and last block leave less disparity than in two middle blocks: the ratio lies below 1.",
        _ends,
    ),
)
