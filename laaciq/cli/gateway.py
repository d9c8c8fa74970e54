"""`laaciq gateway`: which few blocks to keep in 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from laaciq.cli.fitting import Column, FittedTable
from laaciq.cli.printing import print_lines, print_table
from laaciq.cli.verbs import Call, calls_verb
from laaciq.options import GatewayOptions

if TYPE_CHECKING:
    from laaciq.stats.estimate import Estimate
    from laaciq.studies.gateway import Gateway, ReportedSet
    from laaciq.studies.outcomes import Measure, Rank


@calls_verb(GatewayOptions)
def gateway(result: Gateway, call: Call[GatewayOptions]) -> None:
    """Find the blocks to keep in 16 bits for the worst-off language, and compare them with the theory's.

    If it is interrupted, the same command resumes.
    """
    print_table(gateway_table(result))
    print_lines(f"Result: {call.out / 'gateway.json'}")


def gateway_table(result: Gateway) -> RenderableType:
    """The sets that were measured on test text, in the order of validation text, and what the search says of first and last block."""
    sets = sorted(result.tested, key=lambda s: s.rank.value if s.rank else result.possible)
    disparities = [f"{100 * s.disparity.value:z.1f}" for s in sets]
    columns = [
        Column("protected", [set_name(s.blocks) for s in sets], justify="left"),
        Column(
            "rank",
            [_rank(s.rank) if s.rank else "" for s in sets],
            importance=4,
            short=("rank", [str(s.rank.value) if s.rank else "" for s in sets]),
        ),
        Column(
            "worst loss",
            [_interval(s.worst, 1000, decimals=0) for s in sets],
            short=("worst loss", [f"{1000 * s.worst.value:z.1f}" for s in sets]),
        ),
        Column(
            "disparity, %",
            [_interval(s.disparity, 100) for s in sets],
            importance=3,
            short=("disparity, %", disparities),
        ),
        Column("mean", [f"{1000 * s.mean.value:.1f}" for s in sets], importance=2),
        Column("bits", [f"{s.bits_per_weight:.2f}" for s in sets], importance=1),
        Column("size ÷", [f"{s.compression:.2f}" for s in sets], importance=0),
    ]
    title = (
        f"{result.model}, {result.method}, {result.bits} bits, group {result.group_size}: {result.protect} of {result.blocks} blocks "
        f"in 16 bits ({result.texts})"
    )
    return Group(FittedTable(columns, title=title, gap=1), *_footer(result))


def set_name(blocks: tuple[int, ...]) -> str:
    return f"{{{', '.join(map(str, blocks))}}}" if blocks else "none"


def _rank(rank: Rank) -> str:
    return f"{rank.value} [{rank.low}, {rank.high}]"


def _interval(estimate: Estimate, scale: int, *, decimals: int = 1) -> str:
    return (
        f"{scale * estimate.value:z.1f} [{scale * estimate.low:z.{decimals}f}, {scale * estimate.high:z.{decimals}f}]"
    )


def _footer(result: Gateway) -> list[Text]:
    among = f"{result.possible} sets" if result.exhaustive else f"{len(result.sets)} measured sets of {result.possible}"
    lines = [
        f"Chosen on {result.validation_tokens:,} validation tokens, measured on {result.test_tokens:,} test tokens, "
        f"{len(result.languages)} languages. Rank: by worst loss on validation text, among {among}. Losses in millinats per token; bits "
        f"per weight in the blocks; size ÷ is the size of the whole model in 16 bits over its size here."
    ]
    lines += [_best(result, measure) for measure in ("worst", "disparity")]
    for tested in result.tested:
        lines += [
            _standing(tested, name) for name in tested.names if name in ("first, best, last", "published", "none")
        ]
    if result.additive_correlation is not None:
        lines.append(f"Additive model against measurement: rank correlation {result.additive_correlation:.2f}.")
    if result.not_served:
        lines.append(f"Not served by the original and left out: {', '.join(result.not_served)}.")
    return [Text(line, style="dim") for line in lines]


def _best(result: Gateway, measure: Measure) -> str:
    best, share = result.best(measure), result.best_share[measure]
    held = " and ".join(
        f"{'' if block in best.blocks else 'not '}the {name} block ({100 * share[block]:.0f} % of resamples do)"
        for name, block in (("first", 0), ("last", result.blocks - 1))
    )
    label = {"worst": "worst loss", "disparity": "disparity"}[measure]
    return f"Best by {label} on validation text: {set_name(best.blocks)}. It contains {held}."


def _standing(tested: ReportedSet, name: str) -> str:
    label = {"first, best, last": "First, best, last", "published": "The theory's set", "none": "No protection"}[name]
    ranks = ""
    if tested.rank and tested.disparity_rank:
        ranks = f" {set_name(tested.blocks)}: rank {_rank(tested.rank)} by worst loss, {_rank(tested.disparity_rank)} by disparity;"
    return f"{label}{ranks or ':'} worst loss on test text minus the best set's: {_interval(tested.behind_best, 1000)}."
