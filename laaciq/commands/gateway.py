"""`gateway`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from laaciq import studies
from laaciq.commands.opening import _chosen, _open, _words
from laaciq.engine.progress import Progress
from laaciq.options import BUILTIN, REFERENCE
from laaciq.studies import Gateway
from laaciq.studies.block_sets import set_count
from laaciq.studies.gateway import GatewayOptions

PARTS = ("calibration", "test")


def gateway(
    model: str | Path = REFERENCE,
    *,
    protect: int = 3,
    method: str = "rtn",
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> Gateway:
    """Find the `protect` blocks that help the worst-off language most when they stay in 16 bits."""
    chosen = _chosen(model, texts, languages, {**options, "method": method})
    asked = GatewayOptions.of(
        protect=protect,
        bits=chosen.bits,
        group_size=chosen.group_size,
        symmetric=chosen.symmetric,
        method=chosen.method,
    )
    words = f"laaciq gateway{_words(chosen)} --protect {protect}"
    opened = _open(chosen, lambda split: split.validation, out, {"command": words}, overwrite, device, progress)
    set_count(len(opened.model.anatomy.block_names), protect)  # refuses before a folder is made
    return studies.gateway(
        opened.model,
        opened.split.validation,
        opened.split.test,
        chosen.measuring(),
        **asked.model_dump(),
        store=opened.store,
        progress=opened.progress,
    )
