"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laaciq.errors import BadOption
from laaciq.options import GroupSize

Languages = Annotated[str | None, typer.Option(help="Only these, for example 'eng,swa,Tamil'.")]
TextSource = Annotated[
    str, typer.Option("--texts", help="'builtin', a folder, a .jsonl or .parquet file, datasets:NAME.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Window = Annotated[int | None, typer.Option(help="Most tokens in one pass; longer passages slide.")]
Chat = Annotated[bool, typer.Option("--chat", help="Score through the model's chat template.")]
ServedBound = Annotated[float, typer.Option(help="Original bits a byte above which a language is not served.")]
Seed = Annotated[int, typer.Option(help="Of splits and resampling.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; made if missing, resumed if it is a run's.")]


def split_names(names: str | None) -> list[str] | None:
    """`"eng, swa"` → `["eng", "swa"]`."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def group_size(text: str) -> GroupSize:
    """`"64"` → 64; `channel` and `tensor` as they are."""
    if text == "channel":
        return "channel"
    if text == "tensor":
        return "tensor"
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"group size {text!r} is no number: give a number such as 64, 'channel' or 'tensor'") from None
