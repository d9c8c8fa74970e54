"""`intervene`: what a language loses if one cause is set and all else stays equal."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import run_study
from laaciq.commands.settings import spells_out
from laaciq.options import REFERENCE, InterveneOptions
from laaciq.options.keywords import InterveneKeywords
from laaciq.studies import intervention as study
from laaciq.studies.intervention import Intervention


@spells_out(InterveneOptions, InterveneKeywords)
def intervene(model: str | Path = REFERENCE, **keywords: Unpack[InterveneKeywords]) -> Intervention:
    """Set kurtosis, tokens, bits or the kind of compression, all else equal, and measure what that does to every language.

    Keywords: `InterveneOptions` and `Settings`.
    """
    return run_study(study.intervene, InterveneOptions, model, keywords)
