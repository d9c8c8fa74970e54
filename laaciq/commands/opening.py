"""What every study opens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from laaciq.corpus import Split, Texts, read_split
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder
from laaciq.models import LanguageModel, find_model, load
from laaciq.models.loading import pick_device
from laaciq.options import RunOptions
from laaciq.trials.estimate import estimate, require_memory

PARTS = ("calibration", "test")


@dataclass
class _Opened:
    """What every intervention needs; the folder for results is made when it is first asked for, after all that may be refused."""

    model: LanguageModel
    split: Split
    out: Path | None
    described: dict[str, object]
    overwrite: bool
    progress: Progress

    @property
    def store(self) -> RunFolder | None:
        return None if self.out is None else RunFolder(self.out, description=self.described, overwrite=self.overwrite)


def _chosen(
    model: str | Path, texts: str | Path, languages: Iterable[str] | None, options: dict[str, object]
) -> RunOptions:
    named = None if languages is None else tuple(languages)
    return RunOptions.of(model=str(model), texts=str(texts), languages=named, **options)


def _words(chosen: RunOptions) -> str:
    return chosen.command.removeprefix("laaciq run")


def _open(
    chosen: RunOptions,
    read: Callable[[Split], Texts],
    out: str | Path | None,
    described: dict[str, object],
    overwrite: bool,
    device: str,
    progress: Progress | None,
) -> _Opened:
    """`read` is the part of the texts whose cost is weighed against the memory that there is."""
    place, folder = pick_device(device), find_model(chosen.model)
    split = read_split(chosen.texts, seed=chosen.seed).select(
        None if chosen.languages is None else list(chosen.languages)
    )
    require_memory(estimate(folder, read(split), device=place), place)
    loaded = load(folder, device=device)
    return _Opened(loaded, split, None if out is None else Path(out), described, overwrite, progress or Progress())
