"""`laaciq card`: the model card of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from laaciq.cli import options as shared
from laaciq.cli.printing import print_lines
from laaciq.options import CardOptions


@shared.takes(CardOptions)
def card(
    out: Annotated[Path | None, typer.Option(help="File for the card. Default: README.md in RUN/checkpoint.")] = None,
    overwrite: shared.Overwrite = False,
    **given: Any,
) -> None:
    """Write a model card for the Hugging Face hub: what quantization costs each language, and how it was measured."""
    from laaciq.commands.card import card as card_verb

    written = card_verb(**given, out=out, overwrite=overwrite)
    print_lines(f"Card: {written.path}", *written.lacking)
