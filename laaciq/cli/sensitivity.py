"""`laaciq sensitivity`: which part of a model costs which language."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.corpus import language
from laaciq.options import BUILTIN, REFERENCE, GridOptions, MeasureOptions

if TYPE_CHECKING:
    from laaciq.studies import Sensitivity

# Characters of a cell and of a language's label, with the space after them.
_CELL = 7
_LABEL = 17


class _Options(MeasureOptions, GridOptions):
    pass


@shared.options_of(_Options)
def sensitivity(
    model: shared.Model = REFERENCE,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    part: Annotated[
        str,
        typer.Option(help="Part of the texts: calibration, so that bits may be chosen from the result, or test."),
    ] = "calibration",
    out: shared.Out = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Quantize one block at a time, the embeddings, the head, and measure what each costs each language. Run again, it resumes."""
    from laaciq.commands.sensitivity import sensitivity as measure_parts
    from laaciq.engine.progress import TerminalProgress

    target = out or Path("laaciq-runs") / f"{Path(model).name}-sensitivity"
    values = shared.read_values(options, languages)
    found = measure_parts(
        model,
        part=part,
        texts=texts,
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
    console.print(sensitivity_table(found, width=console.width))
    console.print(f"Result: {target / 'sensitivity.json'}", soft_wrap=True, highlight=False)


def sensitivity_table(found: Sensitivity, *, width: int = 80) -> RenderableType:
    """Languages by parts, worst language first, in as many tables as the width asks for."""
    title = Text(
        f"{found.model}, one part at a time in {found.bits} bits: rise of the loss in millinats a token ({found.texts})",
        style="italic",
    )
    columns = [*range(len(found.parts)), None]
    fitting = max(1, (width - _LABEL) // _CELL)
    chunks = [columns[begin : begin + fitting] for begin in range(0, len(columns), fitting)]
    return Group(title, *(_heat_table(found, chunk) for chunk in chunks), *_footer(found))


def _heat_table(found: Sensitivity, columns: list[int | None]) -> Table:
    """`columns` are positions in `found.parts`; None stands for all together."""
    table = Table(box=None, pad_edge=False)
    table.add_column("language", no_wrap=True, width=_LABEL - 1)
    for column in columns:
        name = "all" if column is None else found.parts[column]
        heading = name.removeprefix("block ").replace("embeddings", "embed")
        table.add_column(heading, justify="right", no_wrap=True, width=_CELL - 1)
    most = max((own.value for losses in found.loss.values() for own in losses), default=0.0)
    for code in sorted(found.languages, key=lambda code: -found.together[code].value):
        table.add_row(f"{code} {language(code).name}", *(_cell(found, code, column, most) for column in columns))
    for code in found.not_served:
        table.add_row(Text(f"{code} {language(code).name}", style="dim"), *[Text("–", style="dim")] * len(columns))
    return table


def _cell(found: Sensitivity, code: str, column: int | None, most: float) -> Text:
    if column is None:
        return Text(_millinats(found.together[code].value), style="dim")
    value = found.loss[code][column].value
    share = value / most if most > 0 else 0.0
    colour = "red" if share > 0.75 else "yellow" if share > 0.5 else "default"
    return Text(_millinats(value), style=f"bold {colour}" if column in found.critical_blocks[code] else colour)


def _millinats(value: float) -> str:
    return f"{1000 * value:z.1f}" if abs(value) < 1 else f"{1000 * value:.0f}"


def _footer(found: Sensitivity) -> list[Text]:
    named = Counter(block for blocks in found.critical_blocks.values() for block in blocks)
    lines = []
    if named:
        often = ", ".join(f"{block} ({count} of {len(found.languages)})" for block, count in named.most_common(5))
        lines.append(
            f"Critical blocks (bold), which carry half of a language's loss from blocks, by languages: {often}."
        )
    if shares := [own.value for own in found.additive_share.values() if own is not None]:
        lines.append(
            f"The parts' losses sum up to {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the loss of all together."
        )
    if (related := found.kurtosis_correlation) is not None:
        lines.append(
            f"κ of a block and its mean loss: r = {related.r:.2f} [{related.low:.2f}, {related.high:.2f}], "
            f"p = {related.p:.2g}, {related.n} blocks."
        )
    if found.not_served:
        lines.append(f"Not served by the original and not measured: {', '.join(found.not_served)}.")
    return [Text(line, style="dim") for line in lines]
