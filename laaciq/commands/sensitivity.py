"""`sensitivity`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from laaciq import studies
from laaciq.commands.opening import _chosen, _open, _words
from laaciq.corpus import Split, Texts
from laaciq.engine.progress import Progress
from laaciq.errors import BadOption
from laaciq.options import BUILTIN, REFERENCE
from laaciq.studies import Sensitivity

PARTS = ("calibration", "test")


def sensitivity(
    model: str | Path = REFERENCE,
    *,
    part: str = PARTS[0],
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> Sensitivity:
    """Quantize one block at a time, the embeddings, the head, and measure what each costs each language, on the calibration part of the
    texts, so that bits may be chosen from the result, or on the test part."""
    chosen = _chosen(model, texts, languages, options)
    if part not in PARTS:
        raise BadOption(f"unknown part {part!r} of the texts: give {' or '.join(PARTS)}")

    def read(split: Split) -> Texts:
        return split.calibration if part == PARTS[0] else split.test

    words = f"laaciq sensitivity{_words(chosen)}" + (f" --part {part}" if part != PARTS[0] else "")
    opened = _open(chosen, read, out, {"command": words}, overwrite, device, progress)
    own = read(opened.split)
    return studies.sensitivity(
        opened.model,
        replace(own, name=f"{own.name}, {part} part"),
        chosen.measuring(),
        bits=chosen.bits,
        group_size=chosen.group_size,
        symmetric=chosen.symmetric,
        store=opened.store,
        progress=opened.progress,
    )
