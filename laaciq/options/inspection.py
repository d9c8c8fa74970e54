"""Options of the commands that inspect a model before it is quantized: profile, screen, survey."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from laaciq.options.base import Condition, Only
from laaciq.options.groups import MeasureOptions, ModelOptions, ReadOptions, TextOptions
from laaciq.options.values import OUTLIER_KURTOSIS, REFERENCE, Source

_TEXTS = frozenset({*TextOptions.model_fields, *ReadOptions.model_fields, "passages"})


def is_profile(source: str) -> bool:
    """True for a profile: its file, or a folder that `profile` or `run` wrote. False for a model."""
    return Path(source).suffix == ".json" or os.path.isfile(os.path.join(source, "profile.json"))  # False for any name


_PROFILED = Field(
    default=None, ge=1, description="Read at most this many calibration passages per language. Default: all."
)
_OUTLIERS = Field(default=OUTLIER_KURTOSIS, description="Excess kurtosis κ above which a block is an outlier block.")
_SCREENED_BITS = Field(default=4, ge=1, le=16, description="Bits per weight to predict for.")
_FROM_PROFILE = "has no effect on a finished profile: give a model instead"


class ProfileOptions(ReadOptions, TextOptions, ModelOptions):
    """Options of `laaciq profile`."""

    verb: ClassVar[str] = "profile"
    bounds_memory: ClassVar[bool] = True

    passages: int | None = _PROFILED
    exposure: Source | None = Field(
        default=None,
        description='JSON file of training tokens by language, such as {"eng": 1000}. Default: known for the reference model only.',
    )
    predictive: bool = Field(
        default=False, description="Also measure predictive redundancy, which takes two more passes."
    )
    outlier_kurtosis: float = _OUTLIERS

    def measuring(self) -> MeasureOptions:
        """How text is read, as a measurement needs it."""
        return MeasureOptions(**self.model_dump(include=set(ReadOptions.model_fields)))


class ScreenOptions(ReadOptions, TextOptions):
    """Options of `laaciq screen`."""

    verb: ClassVar[str] = "screen"
    positional: ClassVar[tuple[str, ...]] = ("source",)
    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(_TEXTS, lambda options: not is_profile(options.source), _FROM_PROFILE),
    )

    source: Source = Field(default=REFERENCE, description="A model, or a profile written by 'laaciq profile'.")
    bits: int = _SCREENED_BITS
    passages: int | None = _PROFILED
    outlier_kurtosis: float = _OUTLIERS


class SurveyOptions(ReadOptions, TextOptions):
    """Options of `laaciq survey`."""

    verb: ClassVar[str] = "survey"
    positional: ClassVar[tuple[str, ...]] = ("models",)
    conditions: ClassVar[tuple[Condition, ...]] = (
        Only(_TEXTS, lambda options: not all(map(is_profile, options.models)), _FROM_PROFILE),
    )

    models: tuple[Source, ...] = Field(min_length=1, description="Models, or profiles written by 'laaciq profile'.")
    bits: int = _SCREENED_BITS
    passages: int | None = _PROFILED
