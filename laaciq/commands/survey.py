"""`survey`: compare the profiles of several models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

from laaciq.commands.profile import read_or_make
from laaciq.commands.settings import spells_out
from laaciq.engine.progress import Progress
from laaciq.options import SurveyOptions
from laaciq.options.keywords import SurveyKeywords
from laaciq.planning.screening import screen_profile
from laaciq.profiling.results import Architecture
from laaciq.strict import StrictModel


class SurveyRow(StrictModel):
    """One model of a survey."""

    model: str
    architecture: Architecture
    max_kurtosis: float
    outlier_blocks: list[int]
    outlier_fraction_low: float
    outlier_fraction_high: float
    risk: str


@spells_out(SurveyOptions, SurveyKeywords)
def survey(
    models: Iterable[str | Path],
    *,
    device: str = "auto",
    progress: Progress | None = None,
    **options: Unpack[SurveyKeywords],
) -> list[SurveyRow]:
    """One row per model or finished profile; options as in `SurveyOptions`."""
    chosen = SurveyOptions.of(models=tuple(map(str, models)), **options)
    given = chosen.model_dump(exclude={"models", "bits"}, exclude_unset=True)
    rows = []
    for model in chosen.models:
        profile = read_or_make(model, device=device, progress=progress, **given)
        fractions = [result.outlier_fraction for result in profile.languages]
        rows.append(
            SurveyRow(
                model=profile.model,
                architecture=profile.architecture,
                max_kurtosis=profile.max_kurtosis,
                outlier_blocks=profile.outlier_blocks,
                outlier_fraction_low=min(fractions),
                outlier_fraction_high=max(fractions),
                risk=screen_profile(profile, bits=chosen.bits).risk,
            )
        )
    return rows
