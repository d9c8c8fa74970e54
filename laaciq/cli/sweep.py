"""`laaciq sweep`: how few bits each language tolerates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq.cli import options as shared
from laaciq.corpus import language
from laaciq.options import BITS, BUILTIN, REFERENCE, GridOptions, MeasureOptions

if TYPE_CHECKING:
    from laaciq.evaluation import Estimate
    from laaciq.studies import Sweep


class _Options(MeasureOptions, GridOptions):
    """What a sweep shares with a run; its own `bits` are several."""


@shared.options_of(_Options)
def sweep(
    model: shared.Model = REFERENCE,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    bits: Annotated[str, typer.Option(help="Of 2, 3, 4, 6 and 8, with commas between.")] = ",".join(map(str, BITS)),
    method: Annotated[str, typer.Option(help="How weights become codes: one that reads no text.")] = "rtn",
    tolerance: Annotated[float, typer.Option(help="Loss that a language tolerates; 0.05 is 5 %.")] = 0.05,
    out: shared.Out = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Quantize to several numbers of bits, and find the fewest that each language tolerates. Run again, it resumes."""
    from laaciq.commands.sweep import sweep as sweep_bits
    from laaciq.engine.progress import TerminalProgress

    target = out or Path("laaciq-runs") / f"{Path(model).name}-sweep"
    values = shared.read_values(options, languages) | {"bits": shared.split_numbers("bits", bits)}
    found = sweep_bits(
        model,
        texts=texts,
        tolerance=tolerance,
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
    console.print(sweep_table(found))
    console.print(f"Result: {target / 'sweep.json'}", soft_wrap=True, highlight=False)


def sweep_table(found: Sweep) -> RenderableType:
    """D by language and bits, the languages that need most bits first; what is tolerated in green."""
    title = f"{found.model}, {found.method}, group {found.group_size}: D by bits ({found.texts})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("language", no_wrap=True)
    for own in found.bits:
        table.add_column(f"{own} bits", justify="right", no_wrap=True)
    table.add_column(f"bits for {100 * found.tolerance:g} %", justify="right", no_wrap=True)
    for code in sorted(found.languages, key=lambda code: _need(found, code)):
        enough = found.tolerated_bits[code]
        cells = [_cell(found.degradation[code][own], enough is not None and own >= enough) for own in found.bits]
        table.add_row(f"{code} {language(code).name}", *cells, _bits(enough))
    for label, measure in (("disparity", "plug_in"), ("noise floor", "noise_floor")):
        table.add_row(Text(label, style="dim"), *(_disparity(found, own, measure) for own in found.bits), "")
    return Group(table, *_footer(found))


def _need(found: Sweep, code: str) -> tuple[float, float]:
    """Sorts by bits needed, most first, then by the loss at the fewest bits."""
    enough = found.tolerated_bits[code]
    at_fewest = found.degradation[code][found.bits[0]]
    return -(enough or float("inf")), -(at_fewest.value if at_fewest else float("inf"))


def _cell(degradation: Estimate | None, tolerated: bool) -> Text:
    if degradation is None:
        return Text("collapsed", style="bold red")
    return Text(_percent(degradation.value), style="green" if tolerated else "default")


def _bits(bits: int | None) -> Text:
    return Text("none", style="bold red") if bits is None else Text(str(bits))


def _disparity(found: Sweep, bits: int, measure: str) -> Text:
    own = found.disparity[bits]
    if own is None:
        return Text("–", style="dim")
    value = own.plug_in.value if measure == "plug_in" else own.noise_floor
    return Text(_percent(value), style="dim")


def _percent(value: float) -> str:
    return f"{100 * value:z.1f} %"


def _footer(found: Sweep) -> list[Text]:
    lines = [
        "Disparity is never beyond noise."
        if found.critical_bits is None
        else f"B* = {found.critical_bits}: the most bits at which disparity is beyond noise."
    ]
    if found.not_served:
        lines.append(f"Not served by the original, left out of all figures: {', '.join(found.not_served)}.")
    return [Text(line, style="dim") for line in lines]
