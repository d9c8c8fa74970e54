"""A model with planted outliers, as a model of the lab: `NAME+outliers`. Its function is that of NAME, and some of its blocks have κ = 150."""

from __future__ import annotations

from pathlib import Path

from laaciq.engine.progress import Progress
from laaciq.engine.store import key_of
from laaciq.engine.whole_output import write_whole
from laaciq.lab.measurements.interventions import PLANTED_KURTOSIS, outlier_places
from laaciq.models import find_model, load
from laaciq.options.base import RUNS
from laaciq.strict import StrictModel
from laaciq.studies.rescaling import plant_outliers

OUTLIERS = "+outliers"


class PlantedOutliers(StrictModel):
    blocks: list[int]
    kurtosis: float


def without_suffix(model: str) -> str:
    """The name of the model that outliers are planted in."""
    return model.removesuffix(OUTLIERS)


def planted_checkpoint(model: str, progress: Progress) -> Path:
    """The folder of a checkpoint with outliers at the depth of BLOOM's, written in full precision if it is not there yet."""
    source = find_model(without_suffix(model))
    out = RUNS / f"{Path(source.name).name}{OUTLIERS}"

    def fill(folder: Path, parts: Path) -> PlantedOutliers:
        loaded = load(source, device="cpu")
        blocks = outlier_places(len(loaded.anatomy.block_names))
        plant_outliers(loaded, blocks, kurtosis=PLANTED_KURTOSIS)
        loaded.module.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        progress.say(
            f"Planted outliers in blocks {', '.join(map(str, blocks))} of {source.name}, at the same function."
        )
        return PlantedOutliers(blocks=blocks, kurtosis=PLANTED_KURTOSIS)

    key = key_of("planted", source.fingerprint, PLANTED_KURTOSIS)
    write_whole(
        out, PlantedOutliers, fill, command=f"laaciq lab run {model}", key=key, overwrite=False, progress=progress
    )
    return out
