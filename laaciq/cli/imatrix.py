"""`laaciq imatrix`: all languages in the importance matrix of llama.cpp's own quantizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, REFERENCE, MeasureOptions


@shared.options_of(MeasureOptions)
def imatrix(
    out: Annotated[Path, typer.Option(help="Folder for the files.")],
    model: shared.Model = REFERENCE,
    overwrite: shared.Overwrite = False,
    plan: Annotated[
        Path | None, typer.Option(help="A plan: its weights of languages, and a type for every tensor.")
    ] = None,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Write an importance matrix of all languages, and a plan's types, for llama.cpp's llama-quantize."""
    from laaciq.commands.imatrix import imatrix as write
    from laaciq.engine.progress import TerminalProgress

    values = shared.read_values(options, languages)
    found = write(
        model,
        out=out,
        overwrite=overwrite,
        plan=plan,
        texts=texts,
        device=device,
        progress=TerminalProgress(),
        **values,
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    console = Console()
    heaviest = max(found.weights, key=lambda code: found.weights[code])
    alike = len(set(found.weights.values())) == 1
    how = "alike" if alike else f"by the plan's weights, most {heaviest}"
    console.print(f"{len(found.weights)} languages count {how}.", highlight=False)
    console.print(
        f"Written: {', '.join(f'{found.folder}/{name}' for name in found.files)}", soft_wrap=True, highlight=False
    )
    console.print(f"Next: {found.command}", soft_wrap=True, highlight=False)
