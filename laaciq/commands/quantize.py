"""`quantize`: from a model to checkpoint folders that transformers loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import open_session
from laaciq.commands.settings import read_keywords, spells_out
from laaciq.engine.store import key_of
from laaciq.engine.whole_output import write_whole
from laaciq.options import REFERENCE, QuantizeOptions
from laaciq.options.keywords import QuantizeKeywords
from laaciq.planning.decision import calibrate, decide, decision_key
from laaciq.planning.estimate import estimate_stages
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.checkpoint import write_checkpoint
from laaciq.quantization.model import Quantized
from laaciq.quantization.plan import PlanSet
from laaciq.strict import StrictModel
from laaciq.trials.session import Session


class QuantizeResult(StrictModel):
    """The written plans and folders, by group of languages; under the empty name if one checkpoint serves all."""

    model: str
    plans: PlanSet
    folders: dict[str, str]

    @property
    def total_bytes(self) -> int:
        return self.plans.total_bytes


@spells_out(QuantizeOptions, QuantizeKeywords)
def quantize(model: str | Path = REFERENCE, *, out: str | Path, **keywords: Unpack[QuantizeKeywords]) -> QuantizeResult:
    """Write a quantized checkpoint of `model` to `out`. Another finished one is replaced only with `overwrite`.

    Keywords: `QuantizeOptions` and `Settings`. Only the calibration and validation parts of the texts are read.
    """
    chosen, settings = read_keywords(QuantizeOptions, keywords, model=model)
    root, quantizing = Path(out), chosen.quantizing()
    opened = open_session(chosen, replace(settings, overwrite=True))

    def fill(folder: Path, parts: Path) -> PlanSet:
        with replace(opened, out=parts) as session:
            session.announce(
                f"Quantizing {session.folder.name} by method {chosen.method}; the checkpoint goes to {root}.",
                estimate_stages(session.costs, session.split, quantizing, last="checkpoint"),
            )
            calibration = calibrate(session, quantizing)
            decision = decide(session, quantizing, calibration)
            write_checkpoints(session, decision.plans, folder, quantize_plans(session, decision.plans, calibration))
        return decision.plans

    key = key_of("quantize", decision_key(opened, quantizing))
    plans = write_whole(
        root, PlanSet, fill, command=chosen.command, key=key, overwrite=settings.overwrite, progress=opened.progress
    )
    folders = {name: str(path) for name, path in plans.folders(root).items()}
    return QuantizeResult(model=opened.folder.name, plans=plans, folders=folders)


def quantize_plans(session: Session, plans: PlanSet, calibration: Calibration | None) -> dict[str, Quantized]:
    """The model quantized by every plan. What is rounded on text is kept in the session's store until the checkpoints are written."""
    return {name: session.quantized(plan, calibration) for name, plan in plans.plans.items()}


def write_checkpoints(session: Session, plans: PlanSet, root: Path, quantized: Mapping[str, Quantized]) -> None:
    """Write the checkpoint of every plan, to `root` or, if there are several, to one folder each."""
    for name, folder in plans.folders(root).items():
        write_checkpoint(session.original, plans.plans[name], folder, quantized=quantized[name])
