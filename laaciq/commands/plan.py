"""`plan`: how each tensor of a model is stored for the worst-off language, under a size budget."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Unpack, cast

from laaciq.commands.opening import open_session
from laaciq.commands.settings import read_keywords, spells_out
from laaciq.engine.files import free_file, write_text
from laaciq.engine.run_folder import read_marker
from laaciq.options import REFERENCE, PlanOptions
from laaciq.options.keywords import PlanKeywords
from laaciq.planning.decision import calibrate, decide
from laaciq.planning.estimate import estimate_stages
from laaciq.planning.results import Planning

# The plan, among what was computed on the way.
_COPY = "plan.json"


@spells_out(PlanOptions, PlanKeywords)
def plan(model: str | Path = REFERENCE, **keywords: Unpack[PlanKeywords]) -> Planning:
    """Plan the storage of every tensor under a budget.

    Keywords: `PlanOptions` and `Settings`. With `out` the plan is written there, to be edited or passed to `quantize` and `run`. Another plan,
    or an edited one, is replaced only with `overwrite`. Intermediate results are stored beside it and not computed again.
    """
    chosen, settings = read_keywords(PlanOptions, keywords, model=model)
    file = None if settings.out is None else _free_file(Path(settings.out), chosen.command, settings.overwrite)
    # Parts of another plan: what is still valid is used, the rest replaced.
    parts = None if file is None else _parts(file)
    with open_session(chosen, replace(settings, out=parts, overwrite=True)) as session:
        quantizing = chosen.quantizing()
        session.announce(
            f"Planning the storage of {session.folder.name}.",
            estimate_stages(session.costs, session.split, quantizing, last="plan"),
        )
        decision = decide(session, quantizing, calibrate(session, quantizing))
        planning = cast("Planning", decision.planning)  # method 'planned' always has one
        if file is not None:
            text = planning.plan.model_dump_json(indent=1)
            session.store.write(_COPY, text)
            write_text(file, text)
        session.store.finish()
    return planning


def _free_file(file: Path, command: str, overwrite: bool) -> Path:
    """Where to write. A plan of the same command that nobody edited may be written again."""
    copy = _parts(Path(os.path.realpath(file))) / _COPY
    marker = read_marker(copy.parent) if copy.is_file() and file.is_file() else None
    same = marker is not None and marker.get("command") == command and copy.read_bytes() == file.read_bytes()
    return free_file(file, overwrite=overwrite or same, replaceable=_is_plan)


def _is_plan(text: str) -> bool:
    """Also if it was edited, and is not valid any more."""
    try:
        content = json.loads(text)
    except ValueError:
        return False
    return isinstance(content, dict) and {"method", "tensors"} <= content.keys()


def _parts(file: Path) -> Path:
    """The folder of what was computed on the way."""
    return file.with_name(f"{file.name}.parts")
