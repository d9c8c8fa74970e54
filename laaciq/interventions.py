"""Interventions on a model by its name: `sensitivity`, `sweep`, `gateway`, `calibration`. What was computed stays in `out` if that is given.

Options of measuring and of grids are those of `RunOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from laaciq import ablation
from laaciq.ablation import CalibrationStudy, Gateway, Sensitivity, Sweep
from laaciq.ablation.gateway import GatewayOptions
from laaciq.ablation.sweep import SweepOptions
from laaciq.corpus import Split, Texts, read_split
from laaciq.engine.estimate import estimate, require_memory
from laaciq.engine.files import write_text
from laaciq.engine.progress import Silence
from laaciq.engine.store import RunFolder
from laaciq.errors import BadOption
from laaciq.models import LanguageModel, find_model, load
from laaciq.models.loading import pick_device
from laaciq.options import BITS, BUILTIN, REFERENCE, CalibrationOptions, RunOptions
from laaciq.planning.gateway_sets import set_count
from laaciq.report.calibration_report import calibration_html

PARTS = ("calibration", "test")


@dataclass
class _Opened:
    """What every intervention needs; the folder for results is made when it is first asked for, after all that may be refused."""

    model: LanguageModel
    split: Split
    out: Path | None
    described: dict[str, object]
    progress: Silence

    @property
    def store(self) -> RunFolder | None:
        return None if self.out is None else RunFolder(self.out, description=self.described)


def sensitivity(
    model: str | Path = REFERENCE,
    *,
    part: str = PARTS[0],
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Silence | None = None,
    **options: object,
) -> Sensitivity:
    """Quantize one block at a time, the embeddings, the head, and measure what each costs each language, on the calibration part of the
    texts, so that bits may be chosen from the result, or on the test part."""
    chosen = _chosen(model, texts, languages, options)
    if part not in PARTS:
        raise BadOption(f"unknown part {part!r} of the texts: give {' or '.join(PARTS)}")

    def read(split: Split) -> Texts:
        return split.calibration if part == PARTS[0] else split.test

    words = f"laaciq sensitivity{_words(chosen)}" + (f" --part {part}" if part != PARTS[0] else "")
    opened = _open(chosen, read, out, {"command": words}, device, progress)
    own = read(opened.split)
    return ablation.sensitivity(
        opened.model,
        replace(own, name=f"{own.name}, {part} part"),
        chosen.measuring(),
        bits=chosen.bits,
        group_size=chosen.group_size,
        symmetric=chosen.symmetric,
        store=opened.store,
        progress=opened.progress,
    )


def sweep(
    model: str | Path = REFERENCE,
    *,
    bits: Iterable[int] = BITS,
    tolerance: float = 0.05,
    method: str = "rtn",
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Silence | None = None,
    **options: object,
) -> Sweep:
    """Quantize to several numbers of bits, and find the fewest that each language tolerates."""
    chosen = _chosen(model, texts, languages, {**options, "method": method})
    asked = SweepOptions.of(
        bits=tuple(bits),
        tolerance=tolerance,
        group_size=chosen.group_size,
        symmetric=chosen.symmetric,
        method=chosen.method,
    )
    words = f"laaciq sweep{_words(chosen)} --bits {','.join(map(str, asked.bits))} --tolerance {tolerance}"
    opened = _open(chosen, lambda split: split.test, out, {"command": words}, device, progress)
    return ablation.sweep(
        opened.model,
        opened.split.test,
        chosen.measuring(),
        **asked.model_dump(),
        store=opened.store,
        progress=opened.progress,
    )


def gateway(
    model: str | Path = REFERENCE,
    *,
    protect: int = 3,
    method: str = "rtn",
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Silence | None = None,
    **options: object,
) -> Gateway:
    """Find the `protect` blocks that help the worst-off language most when they stay in 16 bits."""
    chosen = _chosen(model, texts, languages, {**options, "method": method})
    asked = GatewayOptions.of(
        protect=protect,
        bits=chosen.bits,
        group_size=chosen.group_size,
        symmetric=chosen.symmetric,
        method=chosen.method,
    )
    words = f"laaciq gateway{_words(chosen)} --protect {protect}"
    opened = _open(chosen, lambda split: split.validation, out, {"command": words}, device, progress)
    set_count(len(opened.model.anatomy.block_names), protect)  # refuses before a folder is made
    return ablation.gateway(
        opened.model,
        opened.split.validation,
        opened.split.test,
        chosen.measuring(),
        **asked.model_dump(),
        store=opened.store,
        progress=opened.progress,
    )


def calibration(
    model: str | Path = REFERENCE,
    *,
    test_passages: int | None = None,
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Silence | None = None,
    **options: object,
) -> CalibrationStudy:
    """Calibrate on English alone, on all languages, on more and on less text, and measure each language. Options as in `CalibrationOptions`
    and `MeasureOptions`."""
    own = {name: value for name, value in options.items() if name in CalibrationOptions.model_fields}
    asked = CalibrationOptions.of(**own)
    chosen = _chosen(model, texts, languages, {name: value for name, value in options.items() if name not in own})
    described = {"model": chosen.model, "texts": chosen.texts, **chosen.measuring().model_dump(), **asked.model_dump()}
    opened = _open(chosen, lambda split: split.test, out, {"calibration": described}, device, progress)
    split = opened.split
    if test_passages is not None:
        split = replace(split, test=split.test.spread(test_passages))
    found = ablation.calibration_study(
        opened.model, split, chosen.measuring(), store=opened.store, progress=opened.progress, **asked.model_dump()
    )
    if out is not None:
        write_text(Path(out) / "calibration.html", calibration_html(found))
    return found


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
    device: str,
    progress: Silence | None,
) -> _Opened:
    """`read` is the part of the texts whose cost is weighed against the memory that there is."""
    place, folder = pick_device(device), find_model(chosen.model)
    split = read_split(chosen.texts, seed=chosen.seed).select(
        None if chosen.languages is None else list(chosen.languages)
    )
    require_memory(estimate(folder, read(split), device=place), place)
    loaded = load(folder, device=device)
    return _Opened(loaded, split, None if out is None else Path(out), described, progress or Silence())
