"""`sensitivity`: what each language loses when one block, the embeddings or the head alone is quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import run_study
from laaciq.commands.settings import spells_out
from laaciq.options import REFERENCE, GridOptions, SensitivityOptions
from laaciq.options.keywords import SensitivityKeywords
from laaciq.studies import sensitivity as study
from laaciq.studies.sensitivity import Sensitivity
from laaciq.trials.session import Session


@spells_out(SensitivityOptions, SensitivityKeywords)
def sensitivity(model: str | Path = REFERENCE, **keywords: Unpack[SensitivityKeywords]) -> Sensitivity:
    """Quantize one block at a time, the embeddings, the head, and measure what each costs each language.

    Keywords: `SensitivityOptions` and `Settings`.
    """
    return run_study(_study, SensitivityOptions, model, keywords)


def _study(session: Session, options: SensitivityOptions) -> Sensitivity:
    part = session.split.calibration if options.part == "calibration" else session.split.test
    texts = part if options.passages is None else part.spread(options.passages)
    return study.sensitivity(session, texts, options.group(GridOptions), part=options.part)
