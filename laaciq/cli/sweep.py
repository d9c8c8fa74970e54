"""`laaciq sweep`: how few bits each language tolerates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from laaciq.cli.fitting import Cell, Column, FittedTable, language_column
from laaciq.cli.printing import print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.options import SweepOptions

if TYPE_CHECKING:
    from laaciq.stats.estimate import Estimate
    from laaciq.studies.sweep import Sweep


@calls_verb(SweepOptions)
def sweep(result: Sweep, call: Call[SweepOptions]) -> None:
    """Quantize to several bit widths, and find the fewest bits that each language tolerates.

    If it is interrupted, the same command resumes.
    """
    print_table(sweep_table(result))
    print_lines(f"Result: {call.out / 'sweep.json'}")


def sweep_table(result: Sweep) -> RenderableType:
    """D by language and bits, the languages that need most bits first; what is tolerated in green."""
    from laaciq.corpus.languages import language

    codes = sorted(result.languages, key=lambda code: _need(result, code))
    columns = [
        language_column(
            [*(f"{code} {language(code).name}" for code in codes), *_dim("disparity", "noise floor")],
            [*codes, *_dim("disp.", "floor")],
        )
    ]
    columns += [_bits_column(result, codes, bits) for bits in result.bits]
    needed: list[Cell] = [*(_bits(result.tolerated_bits[code]) for code in codes), "", ""]
    columns.append(Column(f"bits for {100 * result.tolerance:g} %", needed, short=("bits", needed)))
    title = f"{result.model}, {result.method}, group {result.group_size}: D by bits ({result.texts})"
    return Group(FittedTable(columns, title=title), *_footer(result))


def _bits_column(result: Sweep, codes: list[str], bits: int) -> Column:
    from laaciq.evaluation.degradation import COLLAPSE_FACTOR

    losses = [result.degradation[code][bits] for code in codes]
    disparity = result.disparity[bits]
    spread = (None, None) if disparity is None else (disparity.plug_in.value, disparity.noise_floor)
    styles = [
        "green" if (enough := result.tolerated_bits[code]) is not None and bits >= enough else "default"
        for code in codes
    ]
    full, short = (
        [
            *(_cell(loss, style, unit, collapsed) for loss, style in zip(losses, styles, strict=True)),
            *_dim(*("–" if value is None else f"{_percentage(value)}{unit}" for value in spread)),
        ]
        for unit, collapsed in ((" %", "collapsed"), ("", f">{100 * (COLLAPSE_FACTOR - 1)}"))
    )
    return Column(f"{bits} bits", full, short=(f"{bits} (%)", short))


def _dim(*cells: str) -> list[Text]:
    return [Text(cell, style="dim") for cell in cells]


def _need(result: Sweep, code: str) -> tuple[float, float]:
    """Sorts by bits needed, most first, then by the loss at the fewest bits."""
    enough = result.tolerated_bits[code]
    at_fewest = result.degradation[code][result.bits[0]]
    return -(enough or float("inf")), -(at_fewest.value if at_fewest else float("inf"))


def _cell(degradation: Estimate | None, style: str, unit: str, collapsed: str) -> Text:
    if degradation is None:
        return Text(collapsed, style="bold red")
    return Text(f"{_percentage(degradation.value)}{unit}", style=style)


def _bits(bits: int | None) -> Text:
    return Text("none", style="bold red") if bits is None else Text(str(bits))


def _percentage(value: float) -> str:
    return f"{100 * value:z.1f}"


def _footer(result: Sweep) -> list[Text]:
    lines = [
        "Disparity is never beyond noise."
        if result.critical_bits is None
        else f"B* = {result.critical_bits}: the most bits at which disparity is beyond noise."
    ]
    if result.not_served:
        lines.append(f"Not served by the original, left out of all figures: {', '.join(result.not_served)}.")
    return [Text(line, style="dim") for line in lines]
