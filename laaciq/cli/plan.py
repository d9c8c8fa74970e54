"""`laaciq plan`: bits and groups by tensor, for the worst-off language, under a budget."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, REFERENCE, CheckpointOptions

if TYPE_CHECKING:
    from laaciq.planning.results import Planning


@shared.options_of(CheckpointOptions)
def plan(
    model: shared.Model = REFERENCE,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    out: Annotated[Path, typer.Option(help="File for the plan.")] = Path("plan.json"),
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Plan how each tensor is stored under a size budget, for the worst-off language. Edit the file, or give it to quantize and run."""
    from laaciq.commands.plan import plan as make
    from laaciq.engine.progress import TerminalProgress
    from laaciq.report.wording import planning_sentences

    values = shared.read_values(options, languages)
    found = make(model, out=out, overwrite=overwrite, texts=texts, device=device, progress=TerminalProgress(), **values)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    console = Console()
    console.print(_bits_table(found))
    if found.front:
        console.print(_front_table(found))
    for sentence in planning_sentences(found):
        console.print(sentence, highlight=False)
    size = found.plan.size
    console.print(
        f"Size: {size.block_bits_per_weight:.2f} bits a weight in the blocks, {size.model_bits_per_weight:.2f} over the whole model.",
        highlight=False,
    )
    console.print(f"Next: laaciq quantize {model} --plan {out} --out checkpoint", soft_wrap=True, highlight=False)


def _bits_table(found: Planning) -> Table:
    """How many tensors of each kind get how many bits."""
    kinds: dict[str, Counter[int]] = {}
    for tensor in found.plan.tensors:
        kinds.setdefault(tensor.name.removesuffix(".weight").rpartition(".")[2], Counter())[tensor.bits] += 1
    widths = sorted({bits for counts in kinds.values() for bits in counts})
    table = Table("tensors", *(f"{bits} bits" for bits in widths), box=None)
    for kind, counts in kinds.items():
        table.add_row(kind, *(str(counts[bits] or "") for bits in widths))
    return table


def _front_table(found: Planning) -> Table:
    table = Table("bits a weight", "worst ΔNLL", "disparity", box=None, title="Predicted", title_justify="left")
    for point in found.front:
        table.add_row(f"{point.bits_per_weight:.2f}", f"{point.worst:.3f}", f"{100 * point.disparity:.1f} %")
    return table
