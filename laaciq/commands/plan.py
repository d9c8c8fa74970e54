"""`plan`: how each tensor of a model is to be stored for the worst-off language, under a size budget."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from laaciq.engine.files import require_free_file, write_text
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption
from laaciq.options import BUILTIN, REFERENCE, CheckpointOptions
from laaciq.planning.decision import calibrate, decide
from laaciq.planning.methods import find_method
from laaciq.planning.results import Planning
from laaciq.trials.session import Session


def plan(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: object,
) -> Planning:
    """Plan the storage of every tensor under a budget; options as in `CheckpointOptions`.

    With `out` the plan is written there, to be edited or given to `quantize` and `run`; a plan that is there is replaced only with
    `overwrite`. What was computed on the way stays beside it, and is
    not computed again.
    """
    chosen = CheckpointOptions.of(**{"method": "planned", **options})
    if not find_method(chosen.method).planned:
        raise BadOption(f"method {chosen.method!r} plans nothing: leave --method out, or use 'laaciq quantize'")
    file = None if out is None else Path(out)
    if file is not None:
        require_free_file(file, overwrite=overwrite)
    session = Session.open(
        model,
        texts,
        chosen.measuring(),
        languages=languages,
        out=None if file is None else file.with_name(f"{file.name}.parts"),
        description={} if file is None else {"plan": file.name},
        overwrite=True,  # parts of another plan: what is still valid is used, the rest replaced
        device=device,
        progress=progress,
    )
    quantizing = chosen.quantizing()
    decision, _ = decide(session, quantizing, calibrate(session, quantizing))
    if decision.planning is None:
        raise BadOption("--plan names a plan that is made already: leave it out")
    if file is not None:
        write_text(file, decision.planning.plan.model_dump_json(indent=1))
    return decision.planning
