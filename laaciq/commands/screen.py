"""`screen`: what the theory predicts for a model before anything is quantized."""

from __future__ import annotations

from pathlib import Path

from laaciq.commands.profile import read_or_make
from laaciq.options import REFERENCE
from laaciq.planning.screening import Screening, ScreeningThresholds, screen_profile
from laaciq.profiling.results import Profile


def screen(
    source: str | Path | Profile = REFERENCE,
    *,
    bits: int = 4,
    thresholds: ScreeningThresholds = ScreeningThresholds(),
    **options: object,
) -> Screening:
    """What the theory predicts for a model, or for a profile that was made before; options as for `profile`."""
    found = source if isinstance(source, Profile) else read_or_make(source, thresholds=thresholds, **options)
    return screen_profile(found, bits=bits, thresholds=thresholds)
