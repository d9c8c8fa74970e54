"""`laaciq imatrix`: all languages in the importance matrix of llama.cpp's own quantizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from laaciq.cli import options as shared
from laaciq.options import ImatrixOptions


@shared.takes(ImatrixOptions)
def imatrix(
    out: Annotated[Path, typer.Option(help="Folder for the files.")],
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **given: Any,
) -> None:
    """Write an importance matrix of all languages, and the types of a plan, for llama.cpp's llama-quantize."""
    ImatrixOptions.of(**given)

    from laaciq.commands.imatrix import imatrix as imatrix_verb
    from laaciq.engine.progress import TerminalProgress

    found = imatrix_verb(**given, out=out, overwrite=overwrite, device=device, progress=TerminalProgress())
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    heaviest = max(found.weights, key=lambda code: found.weights[code])
    alike = len(set(found.weights.values())) == 1
    how = "alike" if alike else f"by the plan's weights, most {heaviest}"
    shared.print_lines(
        f"{len(found.weights)} languages count {how}.",
        f"Written: {', '.join(f'{found.folder}/{name}' for name in found.files)}",
        f"Next: {found.command}",
    )
