"""`gateway`: which few blocks to keep in 16 bits for the worst-off language."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import run_study
from laaciq.commands.settings import spells_out
from laaciq.options import REFERENCE, GatewayOptions
from laaciq.options.keywords import GatewayKeywords
from laaciq.studies import gateway as study
from laaciq.studies.gateway import Gateway


@spells_out(GatewayOptions, GatewayKeywords)
def gateway(model: str | Path = REFERENCE, **keywords: Unpack[GatewayKeywords]) -> Gateway:
    """Find the `protect` blocks that help the worst-off language most when they stay in 16 bits.

    Keywords: `GatewayOptions` and `Settings`.
    """
    return run_study(study.gateway, GatewayOptions, model, keywords)
