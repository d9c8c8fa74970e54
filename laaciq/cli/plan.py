"""`laaciq plan`: bits and groups by tensor, for the worst-off language, under a budget."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.engine.escaping import shell_command
from laaciq.options import PlanOptions

if TYPE_CHECKING:
    from laaciq.planning.results import Planning


@shared.takes(PlanOptions)
def plan(
    out: Annotated[Path, typer.Option(help="File for the plan.")] = Path("plan.json"),
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **given: Any,
) -> None:
    """Plan how each tensor is stored under a size budget, for the worst-off language.

    Edit the file, or give it to 'laaciq quantize' and 'laaciq run' as --plan.
    """
    options = PlanOptions.of(**given)

    from laaciq.commands.plan import plan as plan_verb
    from laaciq.engine.progress import TerminalProgress
    from laaciq.planning.runtimes import RUNTIMES
    from laaciq.report.wording import planning_sentences

    planning = plan_verb(**given, out=out, overwrite=overwrite, device=device, progress=TerminalProgress())
    if as_json:
        print_json(planning)
        return
    print_table(_bits_table(planning))
    if planning.front:
        print_table(_front_table(planning))
    size, rules = planning.plan.size, RUNTIMES[options.runtime]
    in_file = f" In a file for {rules.name}: {rules.block_bits_per_weight(planning.plan.in_blocks):.2f} in the blocks."
    print_table(
        *planning_sentences(planning),
        f"Size: {size.block_bits_per_weight:.2f} bits per weight in the blocks, {size.model_bits_per_weight:.2f} over the whole model."
        + (in_file if rules.bits_per_weight is not None else ""),
    )
    print_lines(
        f"Next: {shell_command(['laaciq', 'quantize', options.model, '--plan', str(out), '--out', 'checkpoint'])}"
    )


def _bits_table(planning: Planning) -> Table:
    """How many tensors of each kind get how many bits."""
    kinds: dict[str, Counter[int]] = {}
    for tensor in planning.plan.tensors:
        kinds.setdefault(tensor.name.removesuffix(".weight").rpartition(".")[2], Counter())[tensor.bits] += 1
    widths = sorted({bits for counts in kinds.values() for bits in counts})
    table = Table("tensors", *(f"{bits} bits" for bits in widths), box=None)
    for kind, counts in kinds.items():
        table.add_row(kind, *(str(counts[bits] or "") for bits in widths))
    return table


def _front_table(planning: Planning) -> Table:
    table = Table("bits per weight", "worst ΔNLL", "disparity", box=None, title="Predicted", title_justify="left")
    for point in planning.front:
        table.add_row(f"{point.bits_per_weight:.2f}", f"{point.worst:.3f}", f"{100 * point.disparity:.1f} %")
    return table
