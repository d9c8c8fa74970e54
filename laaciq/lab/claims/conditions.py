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

# κ below which the theory sees no outliers.
_NO_OUTLIERS = 5.0


def _removed(words: str) -> Claimed:
    """Disparity ≈ 0: below the value that the theory calls a disparity."""
    return Claimed(statistic=f"disparity {words}", threshold=DISPARITY, side="below", claimed=DISPARITY / 4)


NO_OUTLIERS = _removed("without outliers")
USED_ALIKE = _removed("with outliers in the block used most alike")
MANY_BITS = _removed("with planted outliers at 8 bits")
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


def _without(evidence: Evidence, removed: tuple[str, str], present: tuple[str, str], claim: Claimed) -> Finding:
    """Disparity of the candidate without the condition; the plot shows one with it beside. Both are a name and what it is."""
    sides = [evidence.losses(name) for name, _ in (removed, present)]
    values = [losses.disparity().estimate for losses in sides]
    plot = Bars(names=[removed[1], present[1]], values=values, label="disparity, max D − min D")
    return disparity_over(sides[0], 1.0, claim=claim, plot=plot)


_PLANTED = ("planted-4", "κ = 150 in three blocks, 4 bits")


def _no_outliers(evidence: Evidence) -> Finding:
    left: float = evidence["equalised-kurtosis"]
    if left >= _NO_OUTLIERS:
        raise NotApplicable(
            f"C1 stays: κ of a block is {left:.1f} at least, at this function", "a model that allows less"
        )
    return _without(evidence, ("equalised-4", "κ as small as possible"), _PLANTED, NO_OUTLIERS)


def _used_alike(evidence: Evidence) -> Finding:
    left: float = evidence["equalised-kurtosis"]
    table, _ = evidence.table("planted-alike")
    spread, most = float(np.ptp(table.fractions, axis=0).min()), ScreeningThresholds().outlier_fraction_range
    if left >= _NO_OUTLIERS:
        raise NotApplicable(
            f"C2 stays: other blocks have outliers too, with κ of {left:.1f} at least, at this function",
            "a model that allows less",
        )
    if spread >= most:
        raise NotApplicable(
            f"C2 stays: languages use every block unlike, by {spread:.3f} of activation norms or more",
            f"a model with a block whose share differs by less than {most:g}",
        )
    return _without(evidence, ("planted-alike", "κ = 150 in the block used most alike"), _PLANTED, USED_ALIKE)


def _many_bits(evidence: Evidence) -> Finding:
    return _without(evidence, ("planted-8", "κ = 150 in three blocks, 8 bits"), _PLANTED, MANY_BITS)


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
        ("equalised-kurtosis", "equalised-4", "planted-4"),
        "Where every block's κ is made as small as the same function allows, and so below 5, disparity at 4 bits lies below 0.020.",
        _no_outliers,
    ),
    Claim(
        "varying-use-necessary",
        f"{_WORDS} (C2): activation varies. If any condition fails, disparity ≈ 0.",
        _PLACE,
        ("profile", "equalised-kurtosis", "planted-alike", "planted-4"),
        "With outliers in one block alone, whose share of activation norms differs by less than 0.02 between languages, disparity at 4 bits "
        "lies below 0.020.",
        _used_alike,
    ),
    Claim(
        "few-bits-necessary",
        f"{_WORDS} (C3): B < B_safe. If any condition fails, disparity ≈ 0.",
        _PLACE,
        ("planted-8", "planted-4"),
        "With planted outliers, disparity at 8 bits lies below 0.020.",
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
