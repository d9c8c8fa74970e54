"""`laaciq gateway`: which few blocks to keep in 16 bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, REFERENCE, GridOptions, MeasureOptions

if TYPE_CHECKING:
    from laaciq.evaluation import Estimate
    from laaciq.studies import Gateway
    from laaciq.studies.gateway import ReportedSet
    from laaciq.studies.outcomes import Measure, Rank


class _Options(MeasureOptions, GridOptions):
    pass


@shared.options_of(_Options)
def gateway(
    model: shared.Model = REFERENCE,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    protect: Annotated[int, typer.Option(help="How many blocks stay in 16 bits.")] = 3,
    method: Annotated[str, typer.Option(help="How weights become codes: one that reads no text.")] = "rtn",
    out: shared.Out = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Find the blocks whose protection helps the worst-off language most, and try the theory's. Run again, it resumes."""
    from laaciq.commands.gateway import gateway as search
    from laaciq.engine.progress import TerminalProgress

    target = out or Path("laaciq-runs") / f"{Path(model).name}-gateway"
    values = shared.read_values(options, languages)
    found = search(
        model,
        texts=texts,
        protect=protect,
        method=method,
        out=target,
        overwrite=overwrite,
        device=device,
        progress=TerminalProgress(),
        **values,
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    console = Console()
    console.print(gateway_table(found))
    console.print(f"Result: {target / 'gateway.json'}", soft_wrap=True, highlight=False)


def gateway_table(found: Gateway) -> RenderableType:
    """The sets that were measured on test text, in the order of validation text, and what the search says of first and last block."""
    title = (
        f"{found.model}, {found.method}, {found.bits} bits, group {found.group_size}: {found.protect} of {found.blocks} blocks "
        f"in 16 bits ({found.texts})"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("protected", no_wrap=True)
    for heading in ("rank", "worst loss", "disparity, %", "mean", "bits", "size ÷"):
        table.add_column(heading, justify="right", no_wrap=True)
    for own in sorted(found.tested, key=lambda own: own.rank.value if own.rank else found.possible):
        table.add_row(*_row(own))
    return Group(Text(title, style="italic"), table, *_footer(found))


def _row(own: ReportedSet) -> list[RenderableType]:
    return [
        set_name(own.blocks),
        _rank(own.rank) if own.rank else "",
        _interval(own.worst, 1000, decimals=0),
        _interval(own.disparity, 100),
        f"{1000 * own.mean.value:.1f}",
        f"{own.bits_per_weight:.2f}",
        f"{own.compression:.2f}",
    ]


def set_name(blocks: tuple[int, ...]) -> str:
    return f"{{{', '.join(map(str, blocks))}}}" if blocks else "none"


def _rank(rank: Rank) -> str:
    return f"{rank.value} [{rank.low}, {rank.high}]"


def _interval(own: Estimate, scale: int, *, decimals: int = 1) -> str:
    return f"{scale * own.value:z.1f} [{scale * own.low:z.{decimals}f}, {scale * own.high:z.{decimals}f}]"


def _footer(found: Gateway) -> list[Text]:
    among = f"{found.possible} sets" if found.exhaustive else f"{len(found.sets)} measured sets of {found.possible}"
    lines = [
        f"Chosen on {found.validation_tokens:,} validation tokens, measured on {found.test_tokens:,} test tokens, "
        f"{len(found.languages)} languages. Rank: by worst loss on validation text, among {among}. Losses in millinats a token; bits "
        f"a weight in the blocks; the whole model is so many times smaller than in 16 bits."
    ]
    lines += [_best(found, measure) for measure in ("worst", "disparity")]
    for own in found.tested:
        lines += [_standing(own, name) for name in own.names if name in ("first, best, last", "published", "none")]
    if found.additive_correlation is not None:
        lines.append(f"Additive model against measurement: rank correlation {found.additive_correlation:.2f}.")
    if found.not_served:
        lines.append(f"Not served by the original and left out: {', '.join(found.not_served)}.")
    return [Text(line, style="dim") for line in lines]


def _best(found: Gateway, measure: Measure) -> str:
    best, share = found.best(measure), found.best_share[measure]
    held = " and ".join(
        f"{'holds' if block in best.blocks else 'does not hold'} the {name} block ({100 * share[block]:.0f} % of resamples do)"
        for name, block in (("first", 0), ("last", found.blocks - 1))
    )
    label = {"worst": "worst loss", "disparity": "disparity"}[measure]
    return f"Best by {label} on validation text: {set_name(best.blocks)}. It {held}."


def _standing(own: ReportedSet, name: str) -> str:
    label = {"first, best, last": "First, best, last", "published": "The theory's set", "none": "No protection"}[name]
    ranks = ""
    if own.rank and own.disparity_rank:
        ranks = (
            f" {set_name(own.blocks)}: rank {_rank(own.rank)} by worst loss, {_rank(own.disparity_rank)} by disparity;"
        )
    return f"{label}{ranks or ':'} worst loss on test text minus the best set's: {_interval(own.behind_best, 1000)}."
