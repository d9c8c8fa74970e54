"""`laaciq export`: a checkpoint in the format of another library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from laaciq.cli import options as shared
from laaciq.options import ExportOptions


@shared.takes(ExportOptions)
def export(
    out: Annotated[Path, typer.Option(help="Folder for the export.")],
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **given: Any,
) -> None:
    """Write a checkpoint in another library's format, with exactly the same codes."""
    ExportOptions.of(**given)

    from laaciq.cli.tables import folding_table
    from laaciq.commands.export import export as export_verb
    from laaciq.engine.progress import TerminalProgress
    from laaciq.exporting.vllm import rules_sentence

    result = export_verb(**given, out=out, overwrite=overwrite, device=device, progress=TerminalProgress())
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
        return
    stored = "; ".join(f"{words}: {_counted(count, 'layer')}" for words, count in result.layouts.items())
    wider = f", {_counted(result.widened, 'layer')} in a wider layout" if result.widened else ""
    lines = [
        f"Stored with the checkpoint's own codes{wider}. {stored}.",
        f"Size: {result.bytes_before / 1e6:.1f} MB before, {result.bytes_after / 1e6:.1f} MB after.",
    ]
    if result.folded:
        first, count = result.folded[0], _counted(len(result.folded), "tensor")
        lines.append(f"Folded: {count}; {first.tensor} to {first.folded_to}, because {first.reason}.")
    lines += result.notes
    if result.vllm is not None:
        lines.append(rules_sentence(result.vllm))
    console = Console()
    for line in lines:
        console.print(line, highlight=False)
    if result.before is not None and result.after is not None:
        console.print(folding_table(result.before, result.after))
    shared.print_lines(f"Written: {result.folder}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
