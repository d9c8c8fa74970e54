"""`laaciq imatrix`: an importance matrix over all languages for llama.cpp's quantizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_lines
from laaciq.options import ImatrixOptions


@shared.takes(ImatrixOptions)
def imatrix(
    out: Annotated[Path, typer.Option(help="Folder for the importance matrix and the other files.")],
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **given: Any,
) -> None:
    """Write an importance matrix of all languages, and the types of a plan, for llama.cpp's llama-quantize."""
    ImatrixOptions.of(**given)

    from laaciq.commands.imatrix import imatrix as imatrix_verb
    from laaciq.engine.progress import TerminalProgress

    result = imatrix_verb(**given, out=out, overwrite=overwrite, device=device, progress=TerminalProgress())
    if as_json:
        print_json(result)
        return
    heaviest = max(result.weights, key=lambda code: result.weights[code])
    alike = len(set(result.weights.values())) == 1
    how = "alike" if alike else f"by the plan's weights, most {heaviest}"
    print_lines(
        f"{len(result.weights)} languages count {how}.",
        f"Written: {', '.join(f'{result.folder}/{name}' for name in result.files)}",
        f"Next: {result.command}",
    )
