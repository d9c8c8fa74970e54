"""`mixture`: which calibration text, and how much of it."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import open_session
from laaciq.engine.progress import Progress
from laaciq.engine.workers import make_workers
from laaciq.options import REFERENCE, MixtureOptions
from laaciq.options.keywords import MixtureKeywords
from laaciq.report.mixture_report import mixture_html
from laaciq.studies.mixture import mixture_study
from laaciq.studies.mixture_results import MixtureStudy


def mixture(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    workers: int | None = None,
    ray: str | None = None,
    **options: Unpack[MixtureKeywords],
) -> MixtureStudy:
    """Calibrate on one language, on all, on more and on less text, and measure each language.

    Options as in `MixtureOptions`. With `out`, results are stored there and not computed again. `workers` and `ray` as in docs/workers.md.
    """
    chosen = MixtureOptions.of(model=model, **options)
    with open_session(
        chosen, out=out, device=device, overwrite=overwrite, progress=progress, workers=make_workers(workers, ray)
    ) as session:
        result = mixture_study(session, chosen)
        session.store.write("mixture.json", result.model_dump_json(indent=1))
        session.store.write("report.html", mixture_html(result))
        session.store.finish()
    return result
