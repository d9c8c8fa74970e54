"""`laaciq card`: the model card of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from laaciq.cli import options as shared


def card(
    run: Annotated[Path, typer.Argument(help="Folder of a finished 'laaciq run'.")],
    base_model: Annotated[str | None, typer.Option(help="The original's name on the hub, if it is not known.")] = None,
    name: Annotated[str | None, typer.Option(help="What the quantized model is called, such as org/name.")] = None,
    license: Annotated[
        str | None, typer.Option(help="Such as apache-2.0; the original's, if its card is here.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write instead of README.md in RUN/checkpoint.")] = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Write a model card for the Hugging Face hub: what quantization costs each language, and how it was found."""
    from laaciq.commands.card import card as write_card

    written = write_card(run, base_model=base_model, name=name, license=license, out=out, overwrite=overwrite)
    console = Console()
    console.print(f"Card: {written.path}", soft_wrap=True, highlight=False)
    for hint in written.lacking:
        console.print(hint, soft_wrap=True, highlight=False)
