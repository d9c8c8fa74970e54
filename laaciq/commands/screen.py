"""`screen`: predict, before anything is quantized, whether languages will lose differently."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.profile import read_or_make
from laaciq.commands.settings import spells_out
from laaciq.engine.progress import Progress
from laaciq.options import REFERENCE, ScreenOptions
from laaciq.options.keywords import ScreenKeywords
from laaciq.planning.screening import Screening, ScreeningThresholds, screen_profile
from laaciq.profiling.results import Profile


@spells_out(ScreenOptions, ScreenKeywords)
def screen(
    source: str | Path | Profile = REFERENCE,
    *,
    device: str = "auto",
    progress: Progress | None = None,
    **options: Unpack[ScreenKeywords],
) -> Screening:
    """What the theory predicts for a model or a finished profile; options as in `ScreenOptions`."""
    if isinstance(source, Profile):
        chosen, profile = ScreenOptions.of(source="profile.json", **options), source
    else:
        chosen = ScreenOptions.of(source=source, **options)
        given = chosen.model_dump(exclude={"source", "bits"}, exclude_unset=True)
        profile = read_or_make(chosen.source, device=device, progress=progress, **given)
    thresholds = ScreeningThresholds.of(outlier_kurtosis=chosen.outlier_kurtosis)
    return screen_profile(profile, bits=chosen.bits, thresholds=thresholds)
