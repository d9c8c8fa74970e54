"""`sweep`."""

from __future__ import annotations

from pathlib import Path

from laaciq import studies
from laaciq.commands.opening import _open
from laaciq.corpus import Split, Texts
from laaciq.engine.progress import Progress
from laaciq.options import REFERENCE, SweepOptions
from laaciq.studies import Sweep


def sweep(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> Sweep:
    """Quantize to several numbers of bits, and find the fewest that each language tolerates."""
    chosen = SweepOptions.of(model=model, **options)

    def read(split: Split) -> Texts:
        return split.test if chosen.passages is None else split.test.spread(chosen.passages)

    opened = _open(chosen, read, out, {"command": chosen.command}, device, progress)
    return studies.sweep(
        opened.model,
        read(opened.split),
        chosen.measuring(),
        bits=chosen.bits,
        tolerance=chosen.tolerance,
        group_size=chosen.group_size,
        symmetric=chosen.symmetric,
        method=chosen.method,
        store=opened.store,
        progress=opened.progress,
    )
