"""`sweep`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from laaciq import studies
from laaciq.commands.opening import _chosen, _open, _words
from laaciq.engine.progress import Progress
from laaciq.options import BITS, BUILTIN, REFERENCE
from laaciq.studies import Sweep
from laaciq.studies.sweep import SweepOptions

PARTS = ("calibration", "test")


def sweep(
    model: str | Path = REFERENCE,
    *,
    bits: Iterable[int] = BITS,
    tolerance: float = 0.05,
    method: str = "rtn",
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> Sweep:
    """Quantize to several numbers of bits, and find the fewest that each language tolerates."""
    chosen = _chosen(model, texts, languages, {**options, "method": method})
    asked = SweepOptions.of(
        bits=tuple(bits),
        tolerance=tolerance,
        group_size=chosen.group_size,
        symmetric=chosen.symmetric,
        method=chosen.method,
    )
    words = f"laaciq sweep{_words(chosen)} --bits {','.join(map(str, asked.bits))} --tolerance {tolerance}"
    opened = _open(chosen, lambda split: split.test, out, {"command": words}, overwrite, device, progress)
    return studies.sweep(
        opened.model,
        opened.split.test,
        chosen.measuring(),
        **asked.model_dump(),
        store=opened.store,
        progress=opened.progress,
    )
