"""`mixture`: which calibration text, and how much of it."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import run_study
from laaciq.commands.settings import spells_out
from laaciq.options import REFERENCE, MixtureOptions
from laaciq.options.keywords import MixtureKeywords
from laaciq.report.mixture_report import mixture_html
from laaciq.studies.mixture import mixture_study
from laaciq.studies.mixture_results import MixtureStudy


@spells_out(MixtureOptions, MixtureKeywords)
def mixture(model: str | Path = REFERENCE, **keywords: Unpack[MixtureKeywords]) -> MixtureStudy:
    """Calibrate on one language, on all, on more and on less text, and measure each language.

    Keywords: `MixtureOptions` and `Settings`.
    """
    return run_study(mixture_study, MixtureOptions, model, keywords, page=mixture_html)
