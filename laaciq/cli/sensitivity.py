"""`laaciq sensitivity`: which part of a model costs which language."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult  # noqa: TID251 (only as a type)
from rich.table import Table
from rich.text import Text

from laaciq.cli.printing import print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.options import SensitivityOptions

if TYPE_CHECKING:
    from laaciq.studies.sensitivity import Sensitivity

# Characters of a cell and of a language's label, with the space after them.
_CELL = 7
_LABEL = 17


@calls_verb(SensitivityOptions)
def sensitivity(result: Sensitivity, call: Call[SensitivityOptions]) -> None:
    """Quantize one block at a time, then embeddings and head, and measure what each costs each language.

    If it is interrupted, the same command resumes.
    """
    print_table(sensitivity_table(result))
    print_lines(f"Result: {call.out / 'sensitivity.json'}")


def sensitivity_table(result: Sensitivity) -> RenderableType:
    """Languages by parts, worst language first, in as many tables as the width requires."""
    title = f"{result.model}, one part at a time in {result.bits} bits: rise of the loss in millinats per token ({result.texts})"
    return Group(Text(title, style="italic"), _HeatTables(result), *_footer(result))


@dataclass(frozen=True)
class _HeatTables:
    """Losses by language and part, in tables one below the other that fit the console."""

    result: Sensitivity

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [*range(len(self.result.parts)), None]
        fitting = max(1, (options.max_width - _LABEL) // _CELL)
        for begin in range(0, len(columns), fitting):
            yield _heat_table(self.result, columns[begin : begin + fitting])


def _heat_table(result: Sensitivity, columns: list[int | None]) -> Table:
    """`columns` are positions in `result.parts`; None stands for all together."""
    from laaciq.corpus.languages import language

    table = Table(box=None, pad_edge=False)
    table.add_column("language", no_wrap=True, width=_LABEL - 1)
    for column in columns:
        name = "all" if column is None else result.parts[column]
        heading = name.removeprefix("block ").replace("embeddings", "embed")
        table.add_column(heading, justify="right", no_wrap=True, width=_CELL - 1)
    largest = max((loss.value for losses in result.loss.values() for loss in losses), default=0.0)
    for code in sorted(result.languages, key=lambda code: -result.together[code].value):
        table.add_row(f"{code} {language(code).name}", *(_cell(result, code, column, largest) for column in columns))
    for code in result.not_served:
        table.add_row(Text(f"{code} {language(code).name}", style="dim"), *[Text("–", style="dim")] * len(columns))
    return table


def _cell(result: Sensitivity, code: str, column: int | None, largest: float) -> Text:
    if column is None:
        return Text(_millinats(result.together[code].value), style="dim")
    value = result.loss[code][column].value
    share = value / largest if largest > 0 else 0.0
    colour = "red" if share > 0.75 else "yellow" if share > 0.5 else "default"
    return Text(_millinats(value), style=f"bold {colour}" if column in result.critical_blocks[code] else colour)


def _millinats(value: float) -> str:
    return f"{1000 * value:z.1f}" if abs(value) < 1 else f"{1000 * value:.0f}"


def _footer(result: Sensitivity) -> list[Text]:
    named = Counter(block for blocks in result.critical_blocks.values() for block in blocks)
    lines = []
    if named:
        often = ", ".join(f"{block} ({count} of {len(result.languages)})" for block, count in named.most_common(5))
        lines.append(
            f"Critical blocks (bold), which carry half of a language's loss from blocks, by languages: {often}."
        )
    if shares := [share.value for share in result.additive_share.values() if share is not None]:
        lines.append(
            f"The parts' losses sum up to {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the loss of all together."
        )
    if (related := result.kurtosis_correlation) is not None:
        lines.append(
            f"κ of a block and its mean loss: r = {related.r:.2f} [{related.low:.2f}, {related.high:.2f}], "
            f"p = {related.p:.2g}, {related.n} blocks."
        )
    if result.not_served:
        lines.append(f"Not served by the original and not measured: {', '.join(result.not_served)}.")
    return [Text(line, style="dim") for line in lines]
