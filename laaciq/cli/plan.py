"""`laaciq plan`: bits and groups by tensor, for the worst-off language, under a budget."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from laaciq.cli.printing import print_lines, print_table
from laaciq.cli.verbs import Call, Out, calls_verb
from laaciq.engine.escaping import command_words, shell_command
from laaciq.options import PlanOptions, QuantizeOptions

if TYPE_CHECKING:
    from laaciq.planning.results import Planning


@calls_verb(PlanOptions, out=Out("File for the plan.", default=Path("plan.json")))
def plan(planning: Planning, call: Call[PlanOptions]) -> None:
    """Plan how each tensor is stored under a size budget, for the worst-off language.

    Edit the file, or give it to 'laaciq quantize' and 'laaciq run' as --plan.
    """
    from laaciq.planning.runtimes import RUNTIMES
    from laaciq.report.wording import planning_sentences

    print_table(_bits_table(planning))
    if planning.front:
        print_table(_front_table(planning))
    size, rules = planning.plan.size, RUNTIMES[call.options.runtime]
    in_file = f" In a file for {rules.name}: {rules.block_bits_per_weight(planning.plan.in_blocks):.2f} in the blocks."
    print_table(
        *planning_sentences(planning),
        f"Size: {size.block_bits_per_weight:.2f} bits per weight in the blocks, {size.model_bits_per_weight:.2f} over the whole model."
        + (in_file if rules.bits_per_weight is not None else ""),
    )
    following = call.options.carried_over(QuantizeOptions, plan=str(call.out))
    words = [*command_words(following.command), *call.settings_for(QuantizeOptions), "--out", "checkpoint"]
    print_lines(f"Next: {shell_command(words)}")


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
