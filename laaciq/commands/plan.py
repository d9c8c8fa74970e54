"""`plan`: how each tensor of a model is stored for the worst-off language, under a size budget."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack, cast

from laaciq.commands.opening import open_session
from laaciq.engine.files import require_free_file, write_text
from laaciq.engine.progress import Progress
from laaciq.options import REFERENCE, PlanOptions
from laaciq.options.keywords import PlanKeywords
from laaciq.planning.decision import calibrate, decide
from laaciq.planning.estimate import estimate_stages
from laaciq.planning.results import Planning


def plan(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Unpack[PlanKeywords],
) -> Planning:
    """Plan the storage of every tensor under a budget; options as in `PlanOptions`.

    With `out` the plan is written there, to be edited or passed to `quantize` and `run`. An existing plan is replaced only with
    `overwrite`. Intermediate results are stored beside it and not computed again.
    """
    chosen = PlanOptions.of(model=model, **options)
    file = None if out is None else Path(out)
    if file is not None:
        require_free_file(file, overwrite=overwrite)
    session = open_session(
        chosen,
        out=None if file is None else file.with_name(f"{file.name}.parts"),
        overwrite=True,  # parts of another plan: what is still valid is used, the rest replaced
        device=device,
        progress=progress,
    )
    quantizing = chosen.quantizing()
    session.announce(
        f"Planning the storage of {session.folder.name}.",
        estimate_stages(session.costs, session.split, quantizing, last="plan"),
    )
    decision, _ = decide(session, quantizing, calibrate(session, quantizing))
    planning = cast("Planning", decision.planning)  # method 'planned' always has one
    if file is not None:
        write_text(file, planning.plan.model_dump_json(indent=1))
    return planning
