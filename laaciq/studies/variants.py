"""Training variants of one model: what each loses under plain rounding, beside the quantities of the theory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from laaciq.engine.input_files import Refusal
from laaciq.engine.json_input import read_record
from laaciq.engine.store import key_of
from laaciq.errors import BadOption
from laaciq.evaluation.results import Disparity, Evaluation
from laaciq.evaluation.trial import evaluate_trial
from laaciq.options import WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.profiling.results import Profile
from laaciq.stats.estimate import Estimate
from laaciq.strict import LanguageCode, StrictModel
from laaciq.trials.candidate import TextFreePlan
from laaciq.trials.session import Session

_Share = Annotated[float, Field(ge=0, le=1)]
_MEASURE_AGAIN = Refusal(BadOption, "make the file again with recipes/measure_variants.py")


class VariantLosses(StrictModel):
    """Round-to-nearest at so many `bits`. `degradation` is D(λ), None if the language collapsed; languages that the original does not serve
    are in `not_served` alone. `mean` is over languages: of ΔNLL, converted to D.
    """

    bits: int
    degradation: dict[LanguageCode, Estimate | None]
    mean: float | None
    disparity: Disparity | None
    not_served: list[str]


class Variant(StrictModel):
    """One variant with one seed. By language: bits per byte of the original on test text, tokens seen in training, κ_eff, R̂ and the
    fractions ā_l by block. `imbalance` is L·Σ ā_l² − 1, the squared coefficient of variation of the activation norms over blocks;
    0 if all blocks are used alike. `options` are those of its training.
    """

    name: str
    seed: int
    options: dict[str, float | str]
    parameters: int
    tokens_seen: int
    computed_with: dict[str, str]
    texts: str
    kurtosis: list[float] = Field(min_length=1)
    outlier_blocks: list[int]
    bits_per_byte: dict[LanguageCode, float]
    exposure: dict[LanguageCode, Annotated[int, Field(ge=1)]] = Field(min_length=1)
    fractions: dict[LanguageCode, list[_Share]]
    effective_kurtosis: dict[LanguageCode, float]
    outlier_fraction: dict[LanguageCode, _Share]
    imbalance: dict[LanguageCode, float]
    sink_share: dict[LanguageCode, _Share]
    losses: list[VariantLosses]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for by_language in (
            self.fractions,
            self.effective_kurtosis,
            self.outlier_fraction,
            self.imbalance,
            self.sink_share,
        ):
            if by_language.keys() != self.exposure.keys():
                raise ValueError(f"{self.name} has figures of other languages than it was trained on")
        if any(len(fractions) != len(self.kurtosis) for fractions in self.fractions.values()):
            raise ValueError(f"{self.name} has activation fractions of other blocks than it has")
        if any(not 0 <= block < len(self.kurtosis) for block in self.outlier_blocks):
            raise ValueError(f"{self.name} has outlier blocks that it has not")
        return self

    @property
    def max_kurtosis(self) -> float:
        return max(self.kurtosis)

    def at(self, bits: int) -> VariantLosses | None:
        """None if it was not measured at so many bits."""
        return next((losses for losses in self.losses if losses.bits == bits), None)


class Variants(StrictModel):
    """All variants and seeds, as `recipes/measure_variants.py` writes them."""

    version: Literal[1] = 1
    variants: list[Variant] = Field(min_length=1)

    @classmethod
    def read(cls, path: Path) -> Variants:
        return read_record(path, cls, _MEASURE_AGAIN)

    @property
    def languages(self) -> list[str]:
        """The languages that all variants were trained on."""
        shared = set.intersection(*(set(variant.exposure) for variant in self.variants))
        return sorted(shared)

    def of(self, name: str) -> list[Variant]:
        """All seeds of a variant."""
        return sorted((variant for variant in self.variants if variant.name == name), key=lambda v: v.seed)


def measure_variant(
    session: Session,
    *,
    name: str,
    seed: int,
    options: Mapping[str, float | str],
    exposure: Mapping[str, int],
    tokens_seen: int,
    bits: tuple[int, ...] = (3, 4),
) -> Variant:
    """Profile a trained variant on calibration text, and measure it on test text under round-to-nearest."""
    profile, test = session.profile(session.split.calibration), session.split.test
    measured = session.measure([_rounded(session, width) for width in bits], test)
    evaluations = {
        width: evaluate_trial(session, losses, test, quantized=f"rtn, {width} bits")
        for width, losses in zip(bits, measured, strict=True)
    }
    original = next(iter(evaluations.values()))
    by_language = {result.language: result for result in profile.languages}
    return Variant(
        name=name,
        seed=seed,
        options=dict(options),
        parameters=profile.architecture.parameters,
        tokens_seen=tokens_seen,
        computed_with=session.computed_with,
        texts=test.name,
        kurtosis=[block.kurtosis for block in profile.blocks],
        outlier_blocks=profile.outlier_blocks,
        bits_per_byte={result.language: result.original.bits_per_byte for result in original.languages},
        exposure=dict(exposure),
        fractions={code: result.fractions for code, result in by_language.items()},
        effective_kurtosis={code: result.effective_kurtosis for code, result in by_language.items()},
        outlier_fraction={code: result.outlier_fraction for code, result in by_language.items()},
        imbalance=imbalance(profile),
        sink_share={code: result.sink_share for code, result in by_language.items()},
        losses=[_losses(width, evaluation) for width, evaluation in evaluations.items()],
    )


def imbalance(profile: Profile) -> dict[str, float]:
    """L·Σ ā_l² − 1 by language."""
    blocks = len(profile.blocks)
    return {result.language: float(blocks * np.square(result.fractions).sum() - 1) for result in profile.languages}


def _rounded(session: Session, bits: int) -> TextFreePlan:
    plan = make_plans(session.original.anatomy, WeightOptions(method="rtn", bits=bits)).first
    return TextFreePlan(f"{bits} bits", key_of("plan", plan.model_dump()), plan)


def _losses(bits: int, evaluation: Evaluation) -> VariantLosses:
    return VariantLosses(
        bits=bits,
        degradation={result.language: result.degradation for result in evaluation.languages if result.served},
        mean=evaluation.summary.mean,
        disparity=evaluation.disparity,
        not_served=evaluation.summary.not_served,
    )
