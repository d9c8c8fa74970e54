"""`mixture`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from laaciq import studies
from laaciq.commands.opening import _open
from laaciq.engine.files import write_text
from laaciq.engine.progress import Progress
from laaciq.options import REFERENCE, MixtureOptions
from laaciq.report.mixture_report import mixture_html
from laaciq.studies import MixtureStudy


def mixture(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> MixtureStudy:
    """Calibrate on English alone, on all languages, on more and on less text, and measure each language. Options as in `MixtureOptions`."""
    chosen = MixtureOptions.of(model=model, **options)
    opened = _open(chosen, lambda split: split.test, out, {"command": chosen.command}, device, progress)
    split = opened.split
    if chosen.passages is not None:
        split = replace(split, test=split.test.spread(chosen.passages))
    found = studies.mixture_study(opened.model, split, chosen, store=opened.store, progress=opened.progress)
    if out is not None:
        write_text(Path(out) / "mixture.html", mixture_html(found))
    return found
