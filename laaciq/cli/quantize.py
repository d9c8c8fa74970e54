"""`laaciq quantize` writes checkpoints; `laaciq methods` lists the methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_lines, print_table
from laaciq.engine.escaping import shell_command
from laaciq.options import METHODS, QuantizeOptions


@shared.takes(QuantizeOptions)
def quantize(
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint.")],
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **given: Any,
) -> None:
    """Write a quantized checkpoint that transformers loads once laaciq is imported."""
    options = QuantizeOptions.of(**given)

    from laaciq.cli.tables import size_sentence
    from laaciq.commands.quantize import quantize as quantize_verb
    from laaciq.engine.progress import TerminalProgress

    result = quantize_verb(**given, out=out, overwrite=overwrite, device=device, progress=TerminalProgress())
    if as_json:
        print_json(result)
        return
    folders = list(result.folders.values())
    print_table(size_sentence(result.plans))
    print_lines(
        *(f"Written: {folder}" for folder in folders),
        f"Next: {shell_command(['laaciq', 'evaluate', folders[0], '--against', options.model])}",
    )


@shared.takes()
def methods(as_json: shared.AsJson = False) -> None:
    """List the methods, one line each."""
    if as_json:
        print_json({method.name: method.summary for method in METHODS.values()})
        return
    table = Table("method", "what it does", "reads text", box=None)
    for method in METHODS.values():
        table.add_row(method.name, method.summary, "yes" if method.reads_text else "no")
    print_table(table)
