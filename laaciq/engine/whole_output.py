"""Outputs that are complete or absent as a whole, such as a checkpoint: filled beside their place, and moved into it at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from laaciq.engine.file_list import content_of
from laaciq.engine.files import write_text
from laaciq.engine.output import OutputFolder
from laaciq.engine.progress import Progress
from laaciq.engine.run_folder import MARKER
from laaciq.errors import OutputConflict

Result = TypeVar("Result", bound=BaseModel)
# Beside the files of the output: what it was made from, and what `fill` returned.
_RESULT = ".laaciq-result"


def write_whole(
    out: Path,
    kind: type[Result],
    fill: Callable[[Path, Path], Result],
    *,
    command: str,
    key: str,
    overwrite: bool,
    progress: Progress,
) -> Result:
    """What `fill(folder, parts)` returns, which writes all files of the output into `folder`. It may keep in `parts` what an interrupted
    command need not compute again.

    `key` stands for all that decides the output. If `out` holds it already, nothing is written; another finished result there is replaced only
    with `overwrite`.
    """
    with OutputFolder(out, command=command) as output:
        if MARKER in output.listed:
            raise OutputConflict(f"{out} is the folder of a run: choose another folder")
        earlier = _read(out)
        if earlier is not None and earlier["key"] == key and earlier["content"] == content_of(out):
            try:
                result = kind.model_validate(earlier["result"])
            except ValidationError:
                pass  # written by another version of the class
            else:
                output.remove_parts()  # a kill may have come between the output and this
                progress.say(f"{out} is up to date; nothing is computed again.")
                return result
        if output.listed and not overwrite:
            raise OutputConflict(
                f"{out} holds a finished result: choose another folder, or replace the result with --overwrite"
            )
        with output.replacing_all() as folder:
            result = fill(folder, output.parts)
            record = {"key": key, "content": content_of(folder), "result": result.model_dump()}
            write_text(folder / _RESULT, json.dumps(record))
    return result


def _read(out: Path) -> dict[str, Any] | None:
    """None if there is no result, or one that cannot be read."""
    try:
        record = json.loads((out / _RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.keys() >= {"key", "content", "result"} else None
