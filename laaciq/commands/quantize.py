"""`quantize`: from a model to checkpoint folders that transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import open_session
from laaciq.engine.files import atomic_folder, require_free
from laaciq.engine.progress import Progress
from laaciq.options import REFERENCE, QuantizeOptions
from laaciq.options.keywords import QuantizeKeywords
from laaciq.planning.decision import calibrate, decide
from laaciq.planning.estimate import estimate_stages
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.checkpoint import write_checkpoint
from laaciq.quantization.grid import Layers
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


def quantize(
    model: str | Path = REFERENCE,
    *,
    out: str | Path,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Unpack[QuantizeKeywords],
) -> QuantizeResult:
    """Write a quantized checkpoint of `model` to `out`; options as in `QuantizeOptions`. A finished one is replaced only with `overwrite`.

    Only the calibration and validation parts of the texts are read.
    """
    chosen = QuantizeOptions.of(model=model, **options)
    root = Path(out)
    require_free(root, overwrite=overwrite)
    session = open_session(chosen, device=device, progress=progress)
    quantizing = chosen.quantizing()
    session.announce(
        f"Quantizing {session.folder.name} by method {chosen.method}; the checkpoint goes to {root}.",
        estimate_stages(session.costs, session.split, quantizing, last="checkpoint"),
    )
    calibration = calibrate(session, quantizing)
    decision, rounded = decide(session, quantizing, calibration)
    with atomic_folder(root) as partial:
        write_checkpoints(session, decision.plans, partial, calibration=calibration, rounded=rounded)
    folders = {name: str(path) for name, path in decision.plans.folders(root).items()}
    return QuantizeResult(model=session.folder.name, plans=decision.plans, folders=folders)


def write_checkpoints(
    session: Session, plans: PlanSet, root: Path, *, calibration: Calibration | None, rounded: Layers | None = None
) -> None:
    """Write the checkpoint of every plan, to `root` or, if there are several, to one folder each. `rounded` are the layers of a single plan
    that planning has already rounded.
    """
    for name, folder in plans.folders(root).items():
        write_checkpoint(
            session.original, plans.plans[name], folder,
            calibration=calibration, rounded=rounded, progress=session.progress,
        )  # fmt: skip
