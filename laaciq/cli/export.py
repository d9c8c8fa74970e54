"""`laaciq export`: a checkpoint in the format of another library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, ExportOptions


@shared.options_of(ExportOptions)
def export(
    checkpoint: Annotated[Path, typer.Argument(help="A folder that 'laaciq quantize' or 'laaciq run' wrote.")],
    format: Annotated[str, typer.Option(help="compressed-tensors, gptq or gguf.")],
    out: Annotated[Path, typer.Option(help="Folder for the export.")],
    overwrite: shared.Overwrite = False,
    against: Annotated[str | None, typer.Option(help="The original, where --fold changes numbers.")] = None,
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Write a checkpoint in another library's format, its codes carried over exactly."""
    from laaciq.cli.tables import folding_table
    from laaciq.commands.export import export as write
    from laaciq.engine.progress import TerminalProgress
    from laaciq.exporting.vllm import rules_sentence

    values = shared.read_values(options, languages)
    found = write(
        checkpoint,
        format=format,
        out=out,
        overwrite=overwrite,
        against=against,
        texts=texts,
        device=device,
        progress=TerminalProgress(),
        **values,
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    stored = "; ".join(f"{words}: {_counted(count, 'layer')}" for words, count in found.layouts.items())
    wider = f", {_counted(found.widened, 'layer')} in a wider layout" if found.widened else ""
    lines = [
        f"Stored with the checkpoint's own codes{wider}. {stored}.",
        f"Size: {found.bytes_before / 1e6:.1f} MB before, {found.bytes_after / 1e6:.1f} MB after.",
    ]
    if found.folded:
        first, count = found.folded[0], _counted(len(found.folded), "tensor")
        lines.append(f"Folded: {count}; {first.tensor} to {first.folded_to}, because {first.reason}.")
    lines += found.notes
    if found.vllm is not None:
        lines.append(rules_sentence(found.vllm))
    console = Console()
    for line in lines:
        console.print(line, highlight=False)
    if found.before is not None and found.after is not None:
        console.print(folding_table(found.before, found.after))
    console.print(f"Written: {found.folder}", soft_wrap=True, highlight=False)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
