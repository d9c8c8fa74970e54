"""`gateway`."""

from __future__ import annotations

from pathlib import Path

from laaciq import studies
from laaciq.commands.opening import _open
from laaciq.engine.progress import Progress
from laaciq.options import REFERENCE, GatewayOptions
from laaciq.studies import Gateway
from laaciq.studies.block_sets import set_count


def gateway(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> Gateway:
    """Find the blocks that help the worst-off language most when they stay in 16 bits."""
    chosen = GatewayOptions.of(model=model, **options)
    opened = _open(chosen, lambda split: split.validation, out, {"command": chosen.command}, device, progress)
    set_count(len(opened.model.anatomy.block_names), chosen.protect)  # refuses before a folder is made
    return studies.gateway(
        opened.model,
        opened.split.validation,
        opened.split.test if chosen.passages is None else opened.split.test.spread(chosen.passages),
        chosen.measuring(),
        protect=chosen.protect,
        bits=chosen.bits,
        group_size=chosen.group_size,
        symmetric=chosen.symmetric,
        method=chosen.method,
        store=opened.store,
        progress=opened.progress,
    )
