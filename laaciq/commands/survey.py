"""`survey`: models side by side."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

from pydantic import BaseModel, ConfigDict

from laaciq.commands.profile import read_or_make
from laaciq.engine.progress import Progress
from laaciq.options import SurveyOptions
from laaciq.options.keywords import SurveyKeywords
from laaciq.planning.screening import screen_profile
from laaciq.profiling.results import Architecture


class SurveyRow(BaseModel):
    """One model of a survey."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    architecture: Architecture
    max_kurtosis: float
    outlier_blocks: list[int]
    outlier_fraction_low: float
    outlier_fraction_high: float
    risk: str


def survey(
    models: Iterable[str | Path],
    *,
    device: str = "auto",
    progress: Progress | None = None,
    **options: Unpack[SurveyKeywords],
) -> list[SurveyRow]:
    """Models, or profiles made before, side by side; options as in `SurveyOptions`."""
    chosen = SurveyOptions.of(models=tuple(map(str, models)), **options)
    given = chosen.model_dump(exclude={"models", "bits"}, exclude_unset=True)
    rows = []
    for model in chosen.models:
        found = read_or_make(model, device=device, progress=progress, **given)
        fractions = [result.outlier_fraction for result in found.languages]
        rows.append(
            SurveyRow(
                model=found.model,
                architecture=found.architecture,
                max_kurtosis=found.max_kurtosis,
                outlier_blocks=found.outlier_blocks,
                outlier_fraction_low=min(fractions),
                outlier_fraction_high=max(fractions),
                risk=screen_profile(found, bits=chosen.bits).risk,
            )
        )
    return rows
