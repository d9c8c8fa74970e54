"""`sensitivity`: what each language loses when one block, the embeddings or the head alone is quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import open_session
from laaciq.engine.progress import Progress
from laaciq.engine.workers import make_workers
from laaciq.options import REFERENCE, GridOptions, SensitivityOptions
from laaciq.options.keywords import SensitivityKeywords
from laaciq.studies import sensitivity as study
from laaciq.studies.sensitivity import Sensitivity


def sensitivity(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    workers: int | None = None,
    ray: str | None = None,
    **options: Unpack[SensitivityKeywords],
) -> Sensitivity:
    """Quantize one block at a time, the embeddings, the head, and measure what each costs each language.

    Options as in `SensitivityOptions`. With `out`, results are stored there and not computed again. `workers` and `ray` as in docs/workers.md.
    """
    chosen = SensitivityOptions.of(model=model, **options)
    with open_session(
        chosen, out=out, device=device, overwrite=overwrite, progress=progress, workers=make_workers(workers, ray)
    ) as session:
        part = session.split.calibration if chosen.part == "calibration" else session.split.test
        texts = part if chosen.passages is None else part.spread(chosen.passages)
        result = study.sensitivity(session, texts, chosen.group(GridOptions), part=chosen.part)
        session.store.write("sensitivity.json", result.model_dump_json(indent=1))
        session.store.finish()
    return result
