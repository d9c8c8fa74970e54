"""`laaciq quantize` writes checkpoints; `laaciq methods` says by which methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, REFERENCE, CheckpointOptions


@shared.options_of(CheckpointOptions)
def quantize(
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint.")],
    model: shared.Model = REFERENCE,
    overwrite: shared.Overwrite = False,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Write a quantized checkpoint that transformers loads once laaciq is imported."""
    from laaciq.cli.tables import size_sentence
    from laaciq.commands.quantize import quantize as write
    from laaciq.engine.progress import TerminalProgress

    values = shared.read_values(options, languages)
    found = write(
        model, out=out, overwrite=overwrite, texts=texts, device=device, progress=TerminalProgress(), **values
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    console = Console()
    console.print(size_sentence(found.plans), highlight=False)
    for folder in found.folders.values():
        console.print(f"Written: {folder}", soft_wrap=True, highlight=False)
    first = next(iter(found.folders.values()))
    console.print(f"Next: laaciq evaluate {first} --against {model}", soft_wrap=True, highlight=False)


def methods(as_json: shared.AsJson = False) -> None:
    """List the methods, one line each."""
    from laaciq.planning.methods import METHODS

    if as_json:
        typer.echo(
            json.dumps({method.name: method.summary for method in METHODS.values()}, indent=1, ensure_ascii=False)
        )
        return
    table = Table("method", "what it does", "reads text", box=None)
    for method in METHODS.values():
        table.add_row(method.name, method.summary, "yes" if method.reads_text else "no")
    Console().print(table)
