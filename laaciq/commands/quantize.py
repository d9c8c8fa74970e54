"""`quantize`: from a model to checkpoint folders that transformers loads."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from laaciq.commands.plan import calibrate, decide, needs_profile
from laaciq.corpus import read_split
from laaciq.engine.files import require_free
from laaciq.engine.progress import Progress
from laaciq.models import LanguageModel, find_model, load
from laaciq.options import REFERENCE, QuantizeOptions
from laaciq.quantization import Calibration, is_checkpoint, write_checkpoint
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
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> QuantizeResult:
    """Write a quantized checkpoint of `model` to `out`; options as in `QuantizeOptions`.

    `texts` is read only where the method or an option calibrates on it, and of it only the calibration and validation parts.
    """
    progress = progress or Progress()
    chosen = QuantizeOptions.of(model=model, **options)
    asked = chosen.quantizing()
    folder, root = find_model(chosen.model), Path(out)
    require_free(root, _ours)
    split = read_split(chosen.texts, seed=chosen.seed).select(chosen.languages)
    loaded = load(folder, device=device)
    calibration = calibrate(loaded, split, asked, chosen.measuring(), progress) if needs_profile(asked) else None
    plans, _ = decide(loaded, asked, calibration, served_bound=chosen.served_bound, store=None, progress=progress)
    write_checkpoints(loaded, plans, root, calibration=calibration, progress=progress)
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


def _ours(root: Path) -> bool:
    """A checkpoint, or a folder of nothing but checkpoints."""
    return is_checkpoint(root) or all(is_checkpoint(child) for child in root.iterdir())
