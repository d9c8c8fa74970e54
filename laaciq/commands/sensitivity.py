"""`sensitivity`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from laaciq import studies
from laaciq.commands.opening import _open
from laaciq.corpus import Split, Texts
from laaciq.engine.progress import Progress
from laaciq.options import REFERENCE, SensitivityOptions
from laaciq.studies import Sensitivity


def sensitivity(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> Sensitivity:
    """Quantize one block at a time, the embeddings, the head, and measure what each costs each language, on the calibration part of the
    texts, so that bits may be chosen from the result, or on the test part."""
    chosen = SensitivityOptions.of(model=model, **options)

    def read(split: Split) -> Texts:
        texts = split.calibration if chosen.part == "calibration" else split.test
        return texts if chosen.passages is None else texts.spread(chosen.passages)

    opened = _open(chosen, read, out, {"command": chosen.command}, device, progress)
    own = read(opened.split)
    return studies.sensitivity(
        opened.model,
        replace(own, name=f"{own.name}, {chosen.part} part"),
        chosen.measuring(),
        bits=chosen.bits,
        group_size=chosen.group_size,
        symmetric=chosen.symmetric,
        store=opened.store,
        progress=opened.progress,
    )
