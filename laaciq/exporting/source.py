"""The checkpoint to export: its plan, and the facts of its configuration. No weights are read here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laaciq.engine.json_input import read_object
from laaciq.errors import BadOption
from laaciq.models import LinearLayer, ModelFolder, find_model
from laaciq.models.configuration import CONFIG, COPY_AGAIN
from laaciq.models.loading import Kind, outline
from laaciq.quantization.checkpoint import WEIGHTS_FILE, check_checkpoint, is_checkpoint, read_plan, read_section
from laaciq.quantization.plan import Plan

_LEFT_ALONE = ("router", "vision part", "audio part", "projector")


@dataclass(frozen=True)
class CheckpointSource:
    """`linears` are the linear layers of the blocks by the name of their weight, `left_alone` the names of other layers that readers might take
    for quantized ones: routers, and what stands beside the language model. `brain_floats` are the tensors stored in bfloat16.
    """

    folder: Path
    plan: Plan
    config: dict[str, Any]
    kind: Kind
    linears: dict[str, LinearLayer]
    left_alone: tuple[str, ...]
    brain_floats: frozenset[str]

    @property
    def weight_bytes(self) -> int:
        return weight_bytes(self.folder)


def read_source(checkpoint: str | Path) -> CheckpointSource:
    """The checkpoint in a folder; an error if it is not one of ours or its plan does not fit."""
    folder = Path(checkpoint)
    if not is_checkpoint(folder):
        raise BadOption(
            f"{folder} is not a laaciq checkpoint: give a folder written by 'laaciq quantize' or 'laaciq run'"
        )
    kind, anatomy = outline(find_model(folder))
    config = read_object(folder / CONFIG, COPY_AGAIN, within=folder)
    # This entry keeps transformers from loading our checkpoints without this package; an export does not need it.
    config.pop(WEIGHTS_FILE, None)
    plan, linears = read_plan(folder), {linear.name: linear for linear in anatomy.linears}
    check_checkpoint(folder, plan, anatomy)
    left_alone = tuple(
        part.name.removesuffix(".weight")
        for part in anatomy.left_alone
        if part.reason in _LEFT_ALONE and len(part.shape) == 2 and part.name.endswith(".weight")
    )
    brain_floats = frozenset(read_section(folder).brain_floats)
    return CheckpointSource(folder, plan, config, kind, linears, left_alone, brain_floats)


def weight_bytes(folder: Path) -> int:
    """Size of the weight files in bytes."""
    files = list(folder.glob("*.gguf")) or ModelFolder(str(folder), folder).weight_files
    return sum(path.stat().st_size for path in files)
