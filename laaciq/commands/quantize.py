"""`quantize`: from a model to checkpoint folders that transformers loads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from laaciq.commands.plan import calibrate, decide, needs_text
from laaciq.corpus import read_split
from laaciq.engine.files import atomic_folder, require_free
from laaciq.engine.progress import Progress
from laaciq.models import LanguageModel, find_model, load
from laaciq.options import BUILTIN, REFERENCE, CheckpointOptions
from laaciq.planning.methods import find_method
from laaciq.quantization import Calibration, write_checkpoint
from laaciq.quantization.plan import PlanSet


class QuantizeResult(BaseModel):
    """What was written, and where; `folders` and `plans` are by group of languages, under the empty name where one serves all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
    overwrite: bool = False,
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> QuantizeResult:
    """Write a quantized checkpoint of `model` to `out`; options as in `CheckpointOptions`. A finished one is replaced only with `overwrite`.

    `texts` is read only where the method or an option calibrates on it, and of it only the calibration and validation parts.
    """
    progress = progress or Progress()
    chosen = CheckpointOptions.of(**options)
    asked = chosen.quantizing()
    find_method(asked.method)
    folder, root = find_model(model), Path(out)
    require_free(root, overwrite=overwrite)
    split = read_split(texts, seed=chosen.seed).select(None if languages is None else list(languages))
    loaded = load(folder, device=device)
    calibration = calibrate(loaded, split, chosen, progress) if needs_text(asked) else None
    plans, _ = decide(loaded, asked, calibration, served_bound=chosen.served_bound, store=None, progress=progress)
    with atomic_folder(root) as partial:
        write_checkpoints(loaded, plans, partial, calibration=calibration, progress=progress)
    folders = {name: str(path) for name, path in plans.folders(root).items()}
    return QuantizeResult(model=folder.name, plans=plans, folders=folders)


def write_checkpoints(
    model: LanguageModel, plans: PlanSet, root: Path, *, calibration: Calibration | None, progress: Progress
) -> None:
    """Every plan's checkpoint, in `root` or, where there are several, in a folder of its own."""
    total = sum(sum(t.quantized for t in plan.tensors) + plan.tuned for plan in plans.plans.values())
    with progress.stage("quantizing", total) as advance:
        for name, folder in plans.folders(root).items():
            write_checkpoint(model, plans.plans[name], folder, calibration=calibration, advance=lambda: advance(1))
