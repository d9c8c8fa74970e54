"""From the options of a command to its session."""

from __future__ import annotations

from pathlib import Path

from laaciq.engine.progress import Progress
from laaciq.engine.recipe import recipe_of
from laaciq.engine.workers import Workers
from laaciq.options import ProfileOptions
from laaciq.options.groups import MeasuredModelOptions
from laaciq.trials.session import Session


def open_session(
    options: MeasuredModelOptions | ProfileOptions,
    *,
    out: str | Path | None = None,
    description: dict[str, object] | None = None,
    overwrite: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Session:
    """To be used in a `with` block, which gives the folder for results free again."""
    return Session.open(
        options.model,
        options.texts,
        options.measuring(),
        languages=options.languages,
        passages=getattr(options, "passages", None),
        out=out,
        description=description or {"command": options.command},
        overwrite=overwrite,
        recipe=recipe_of(options),
        device=device,
        progress=progress,
        workers=workers,
        allow_left_alone=getattr(options, "allow_left_alone", None),
    )
