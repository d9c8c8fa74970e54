"""`sweep`: what each language loses at several numbers of bits."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import open_session
from laaciq.engine.progress import Progress
from laaciq.engine.workers import make_workers
from laaciq.options import REFERENCE, SweepOptions
from laaciq.options.keywords import SweepKeywords
from laaciq.studies import sweep as study
from laaciq.studies.sweep import Sweep


def sweep(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    workers: int | None = None,
    ray: str | None = None,
    **options: Unpack[SweepKeywords],
) -> Sweep:
    """Quantize to several numbers of bits, and find the fewest that each language tolerates.

    Options as in `SweepOptions`. With `out`, results are stored there and not computed again. `workers` and `ray` as in docs/workers.md.
    """
    chosen = SweepOptions.of(model=model, **options)
    with open_session(
        chosen, out=out, device=device, overwrite=overwrite, progress=progress, workers=make_workers(workers, ray)
    ) as session:
        result = study.sweep(session, chosen)
        session.store.write("sweep.json", result.model_dump_json(indent=1))
        session.store.finish()
    return result
