"""`laaciq intervene`: what one cause does, all else equal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from laaciq.cli.fitting import Column, FittedTable
from laaciq.cli.printing import print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.options import InterveneOptions

if TYPE_CHECKING:
    from laaciq.stats.estimate import Estimate
    from laaciq.studies.intervention import Intervention, Level


@calls_verb(InterveneOptions)
def intervene(result: Intervention, call: Call[InterveneOptions]) -> None:
    """Set one cause, all else equal, and measure the effect on every language: kurtosis, tokens, bits, or pruning instead of quantization.

    If it is interrupted, the same command resumes.
    """
    print_table(intervention_table(result))
    print_lines(f"Result: {call.out / 'intervene.json'}")


def intervention_table(result: Intervention) -> RenderableType:
    """A row per level: mean loss and disparity, each with its paired difference from the baseline."""
    levels = result.levels
    effects = [_interval(level.loss_effect, 1000) for level in levels]
    spreads = [_interval(level.disparity_effect, 100) for level in levels]
    by_byte = [_interval(level.per_byte_effect, 1000) for level in levels]
    columns = [
        Column("level", [level.name for level in levels], justify="left"),
        Column(_SET_TO[result.do], [_set_to(level) for level in levels], importance=1),
        Column("mean D", [_percent(level.loss) for level in levels]),
        Column("effect, millinats", effects, short=("effect", effects)),
        Column("disparity", [f"{100 * level.disparity.value:z.1f} %" for level in levels]),
        Column("effect on disparity, points", spreads, importance=2, short=("on disparity", spreads)),
        Column("effect, millibits per byte", by_byte, importance=0),
    ]
    title = f"{result.model}, {result.bits} bits, group {result.group_size}: do({result.do}) ({result.texts})"
    return Group(FittedTable(columns, title=title), *_footer(result))


_SET_TO = {"kurtosis": "κ", "tokens": "tokens per byte", "bits": "bits", "pruning": "share of zeros"}


def _set_to(level: Level) -> str:
    values = level.set_to.values()
    if not values:
        return "–"
    low, high = min(values), max(values)
    return f"{low:.3g}" if high - low < 0.005 * abs(high) else f"{low:.2g} to {high:.2g}"


def _percent(loss: Estimate) -> str:
    return f"{100 * math.expm1(min(loss.value, 700.0)):z.1f} %"


def _interval(effect: Estimate | None, unit: int) -> str:
    if effect is None:
        return "–"
    return f"{unit * effect.value:+.1f} [{unit * effect.low:z.1f}, {unit * effect.high:z.1f}]"


def _footer(result: Intervention) -> list[Text]:
    lines = ["Effects are paired differences from the first row, on the same documents, with 95 % intervals."]
    drifts = [level.drift for level in result.levels if level.drift is not None]
    if drifts:
        lines.append(f"Before quantization, no logit changes by more than {max(drifts):.1g} of the largest.")
    if result.not_served:
        lines.append(f"Not served by the original, left out of all figures: {', '.join(result.not_served)}.")
    return [Text(line, style="dim") for line in lines]
