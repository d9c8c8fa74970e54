"""`sweep`: what each language loses at several numbers of bits."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import run_study
from laaciq.commands.settings import spells_out
from laaciq.options import REFERENCE, SweepOptions
from laaciq.options.keywords import SweepKeywords
from laaciq.studies import sweep as study
from laaciq.studies.sweep import Sweep


@spells_out(SweepOptions, SweepKeywords)
def sweep(model: str | Path = REFERENCE, **keywords: Unpack[SweepKeywords]) -> Sweep:
    """Quantize to several numbers of bits, and find the fewest that each language tolerates.

    Keywords: `SweepOptions` and `Settings`.
    """
    return run_study(study.sweep, SweepOptions, model, keywords)
