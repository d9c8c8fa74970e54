"""`mixture`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from laaciq import studies
from laaciq.commands.opening import _chosen, _open
from laaciq.engine.files import write_text
from laaciq.engine.progress import Progress
from laaciq.options import BUILTIN, REFERENCE, MixtureOptions
from laaciq.report.mixture_report import mixture_html
from laaciq.studies import MixtureStudy

PARTS = ("calibration", "test")


def mixture(
    model: str | Path = REFERENCE,
    *,
    test_passages: int | None = None,
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> MixtureStudy:
    """Calibrate on English alone, on all languages, on more and on less text, and measure each language. Options as in `MixtureOptions`
    and `MeasureOptions`."""
    own = {name: value for name, value in options.items() if name in MixtureOptions.model_fields}
    asked = MixtureOptions.of(**own)
    chosen = _chosen(model, texts, languages, {name: value for name, value in options.items() if name not in own})
    described = {"model": chosen.model, "texts": chosen.texts, **chosen.measuring().model_dump(), **asked.model_dump()}
    opened = _open(chosen, lambda split: split.test, out, {"calibration": described}, overwrite, device, progress)
    split = opened.split
    if test_passages is not None:
        split = replace(split, test=split.test.spread(test_passages))
    found = studies.mixture_study(
        opened.model, split, chosen.measuring(), store=opened.store, progress=opened.progress, **asked.model_dump()
    )
    if out is not None:
        write_text(Path(out) / "mixture.html", mixture_html(found))
    return found
