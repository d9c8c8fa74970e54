"""`gateway`: which few blocks to keep in 16 bits for the worst-off language."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import open_session
from laaciq.engine.progress import Progress
from laaciq.engine.workers import make_workers
from laaciq.options import REFERENCE, GatewayOptions
from laaciq.options.keywords import GatewayKeywords
from laaciq.studies import gateway as study
from laaciq.studies.gateway import Gateway


def gateway(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    workers: int | None = None,
    ray: str | None = None,
    **options: Unpack[GatewayKeywords],
) -> Gateway:
    """Find the `protect` blocks that help the worst-off language most when they stay in 16 bits.

    Options as in `GatewayOptions`. With `out`, results are stored there and not computed again. `workers` and `ray` as in docs/workers.md.
    """
    chosen = GatewayOptions.of(model=model, **options)
    with open_session(
        chosen, out=out, device=device, overwrite=overwrite, progress=progress, workers=make_workers(workers, ray)
    ) as session:
        result = study.gateway(session, chosen)
        session.store.write("gateway.json", result.model_dump_json(indent=1))
        session.store.finish()
    return result
