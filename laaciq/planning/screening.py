"""Screening: what the theory predicts about a model before it is quantized.

The theory has three conditions, all necessary for languages to lose differently (C1, C2, C3), a checklist, and a strategy by the largest
kurtosis of a block. These are predictions; a measurement decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from laaciq.errors import BadOption
from laaciq.evaluation.theory import GAUSSIAN_KURTOSIS
from laaciq.options import OUTLIER_KURTOSIS, Options
from laaciq.strict import StrictModel

if TYPE_CHECKING:
    from laaciq.profiling.results import Profile

Risk = Literal["HIGH", "MODERATE", "LOW"]


class ScreeningThresholds(Options):
    """The thresholds of the theory.

    `outlier_kurtosis`: a block with κ_l above it is an outlier block (C1). The theory uses both 50, to screen, and 100, to name BLOOM's blocks.
    `outlier_fraction_range`: C2 holds if R̂(λ) spans more than this over languages. The theory demands a variance above 0.001, which would
    reject BLOOM itself, whose R̂ has a variance of 9e-5 and a range of 0.033; the variance is therefore reported and not judged.
    `safe_bits`: C3 holds below it. `gaussian_kurtosis`: below it weights are near Gaussian and need no special handling.
    """

    outlier_kurtosis: float = OUTLIER_KURTOSIS
    outlier_fraction_range: float = 0.02
    safe_bits: int = 8
    gaussian_kurtosis: float = GAUSSIAN_KURTOSIS

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.gaussian_kurtosis > self.outlier_kurtosis:
            raise BadOption(
                f"gaussian_kurtosis {self.gaussian_kurtosis:g} is above outlier_kurtosis {self.outlier_kurtosis:g}: "
                "a block cannot be near Gaussian and an outlier; lower the first or raise the second"
            )
        return self


class _Finite(StrictModel, allow_inf_nan=False):
    """A strict model without infinite values and NaN."""


class Evidence(_Finite):
    """The input of a screening: κ_l by block, R̂(λ) by language (None: activations were not measured), and the bits to quantize to."""

    block_kurtosis: list[float] = Field(min_length=1)
    outlier_fractions: dict[str, float] | None
    bits: int

    @property
    def max_kurtosis(self) -> float:
        return max(self.block_kurtosis)


class RiskCondition(_Finite):
    """One of the conditions for disparity. `answer` is None if the evidence does not decide it."""

    name: str
    question: str
    answer: bool | None
    measured: str
    threshold: str


class CheckBox(_Finite):
    """An item of the checklist. `done` is False if something remains to be measured."""

    question: str
    answer: str
    done: bool


class Screening(_Finite):
    """The verdict before quantization. `conditions` are C1, C2, C3 in order; blocks count from 0. `sampled`: activations were measured on a
    few passages of each language only."""

    conditions: list[RiskCondition]
    risk: Risk
    strategy: str
    checklist: list[CheckBox]
    outlier_blocks: list[int]
    prediction: str
    sampled: bool = False


def screen_evidence(evidence: Evidence, thresholds: ScreeningThresholds = ScreeningThresholds()) -> Screening:
    """The verdict on C1, C2 and C3, the risk and the strategy.

    Risk, the first line that holds:

    - bits at or above `safe_bits` (C3 fails): LOW;
    - max κ below `gaussian_kurtosis`: LOW;
    - max κ above `outlier_kurtosis` (C1 holds): HIGH if C2 holds, LOW if it fails (without one of its conditions disparity is ≈ 0),
      MODERATE if activations were not measured;
    - max κ in between: MODERATE.

    On the published table of models this gives BLOOM (κ 164) HIGH, XGLM (1.9) LOW, mT5 (45) MODERATE, and XLM-R (10), "LOW-MODERATE" there,
    MODERATE. No degradation was measured on these models: the table predicts too.
    """
    conditions = [
        _outliers_exist(evidence, thresholds),
        _activation_varies(evidence, thresholds),
        _bits_are_low(evidence, thresholds),
    ]
    blocks = _outlier_blocks(evidence.block_kurtosis, thresholds)
    risk = _risk(evidence, thresholds, conditions)
    strategy = _strategy(evidence, thresholds, blocks)
    return Screening(
        conditions=conditions,
        risk=risk,
        strategy=strategy,
        checklist=_checklist(evidence, thresholds, conditions, strategy),
        outlier_blocks=blocks,
        prediction=_prediction(evidence, thresholds, conditions, risk),
    )


def screen_profile(profile: Profile, *, bits: int, thresholds: ScreeningThresholds | None = None) -> Screening:
    """The screening of a profiled model. Without `thresholds`, the `outlier_kurtosis` of the profile defines outlier blocks.

    R̂(λ) is summed over these outlier blocks. Without any it is 0 in every language, so C2 fails.
    """
    if thresholds is None:
        outlier = profile.outlier_kurtosis
        # A block cannot be near Gaussian and an outlier.
        gaussian = min(outlier, ScreeningThresholds().gaussian_kurtosis)
        thresholds = ScreeningThresholds(outlier_kurtosis=outlier, gaussian_kurtosis=gaussian)
    kurtosis = [block.kurtosis for block in profile.blocks]
    blocks = _outlier_blocks(kurtosis, thresholds)
    fractions = {result.language: sum(result.fractions[block] for block in blocks) for result in profile.languages}
    evidence = Evidence(block_kurtosis=kurtosis, outlier_fractions=fractions or None, bits=bits)
    return screen_evidence(evidence, thresholds).model_copy(update={"sampled": profile.sampled})


def _outlier_blocks(block_kurtosis: list[float], thresholds: ScreeningThresholds) -> list[int]:
    return [block for block, kurtosis in enumerate(block_kurtosis) if kurtosis > thresholds.outlier_kurtosis]


def _outliers_exist(evidence: Evidence, thresholds: ScreeningThresholds) -> RiskCondition:
    return RiskCondition(
        name="C1",
        question="Do outlier blocks exist?",
        answer=evidence.max_kurtosis > thresholds.outlier_kurtosis,
        measured=f"max κ = {evidence.max_kurtosis:.3g}",
        threshold=f"max κ > {thresholds.outlier_kurtosis:g}",
    )


def _activation_varies(evidence: Evidence, thresholds: ScreeningThresholds) -> RiskCondition:
    fractions = list((evidence.outlier_fractions or {}).values())
    if len(fractions) > 1:
        spread = float(np.ptp(fractions))
        answer = spread > thresholds.outlier_fraction_range
        measured = (
            f"range of R̂ = {spread:.3g}, variance {np.var(fractions, ddof=1):.2g}, over {len(fractions)} languages"
        )
    else:
        answer = None
        measured = "R̂ of one language only" if fractions else "R̂ not measured"
    return RiskCondition(
        name="C2",
        question="Do languages use the outlier blocks differently?",
        answer=answer,
        measured=measured,
        threshold=f"range of R̂ > {thresholds.outlier_fraction_range:g}",
    )


def _bits_are_low(evidence: Evidence, thresholds: ScreeningThresholds) -> RiskCondition:
    return RiskCondition(
        name="C3",
        question="Is quantization coarse enough to hurt?",
        answer=evidence.bits < thresholds.safe_bits,
        measured=f"{evidence.bits} bits",
        threshold=f"bits < {thresholds.safe_bits}",
    )


def _risk(evidence: Evidence, thresholds: ScreeningThresholds, conditions: list[RiskCondition]) -> Risk:
    outliers, varies, coarse = conditions
    if not coarse.answer or evidence.max_kurtosis < thresholds.gaussian_kurtosis:
        return "LOW"
    if not outliers.answer or varies.answer is None:
        return "MODERATE"
    return "HIGH" if varies.answer else "LOW"


def _strategy(evidence: Evidence, thresholds: ScreeningThresholds, blocks: list[int]) -> str:
    if evidence.max_kurtosis < thresholds.gaussian_kurtosis:
        return "standard post-training quantization, no special handling"
    if not blocks:
        return "standard post-training quantization, with evaluation by language"
    return (
        f"below {thresholds.safe_bits} bits: mixed precision ({thresholds.safe_bits} bits for {_named(blocks)}), "
        "or per-language calibration, or more bits everywhere"
    )


def _checklist(
    evidence: Evidence, thresholds: ScreeningThresholds, conditions: list[RiskCondition], strategy: str
) -> list[CheckBox]:
    outliers, varies, coarse = conditions
    kurtosis = evidence.block_kurtosis
    languages = evidence.outlier_fractions or {}
    if varies.answer is None:
        disparity = "Unknown until the activations of two languages or more are measured"
    else:
        disparity = "Yes" if varies.answer and outliers.answer else "No"
    return [
        CheckBox(
            question="Extract kurtosis by block",
            answer=f"{len(kurtosis)} blocks, κ from {min(kurtosis):.3g} to {max(kurtosis):.3g}",
            done=True,
        ),
        CheckBox(
            question=f"Max κ above {thresholds.outlier_kurtosis:g}: proceed with caution?",
            answer=f"{'Yes' if outliers.answer else 'No'}: {outliers.measured}",
            done=True,
        ),
        CheckBox(
            question="Compute activation patterns by language",
            answer=f"Measured in {len(languages)} languages" if languages else "Not measured",
            done=bool(languages),
        ),
        CheckBox(
            question=f"Range of R̂ above {thresholds.outlier_fraction_range:g}: expect disparity?",
            answer=f"{disparity} ({varies.measured})",
            done=varies.answer is not None,
        ),
        CheckBox(
            question="Consider per-language calibration or mixed precision",
            answer=strategy if coarse.answer else f"Not needed at {evidence.bits} bits",
            done=True,
        ),
    ]


def _prediction(
    evidence: Evidence, thresholds: ScreeningThresholds, conditions: list[RiskCondition], risk: Risk
) -> str:
    outliers, varies, coarse = conditions
    if not coarse.answer:
        why = f"{evidence.bits} bits are considered safe"
    elif evidence.max_kurtosis < thresholds.gaussian_kurtosis:
        why = f"weights are near Gaussian ({outliers.measured})"
    elif not outliers.answer:
        why = f"weights are neither near Gaussian nor outliers ({outliers.measured})"
    elif varies.answer is None:
        why = f"there are outlier blocks ({outliers.measured}), and it is not known how languages use them"
    else:
        how = "differently" if varies.answer else "alike"
        why = f"there are outlier blocks ({outliers.measured}), and languages use them {how} ({varies.measured})"
    return f"The risk that languages lose differently is predicted to be {risk}: {why}. A measurement decides."


def _named(blocks: list[int]) -> str:
    return f"{'block' if len(blocks) == 1 else 'blocks'} {', '.join(map(str, blocks))}"
