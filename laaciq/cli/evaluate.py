"""`laaciq evaluate`: a quantized model made by anyone, against its original."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from laaciq.cli import options as shared
from laaciq.options import BUILTIN, EvaluateOptions


@shared.options_of(EvaluateOptions)
def evaluate(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="The quantized model, made by anyone: ours, GPTQ, AWQ, bitsandbytes, compressed-tensors, GGUF."
        ),
    ],
    against: Annotated[str, typer.Option(help="The original model.")],
    texts: shared.TextSource = BUILTIN,
    languages: shared.Languages = None,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    **options: Any,
) -> None:
    """Measure what a quantized model loses in each language."""
    from laaciq.cli.tables import evaluation_table
    from laaciq.commands.evaluate import evaluate as evaluate_chain
    from laaciq.engine.progress import TerminalProgress

    values = shared.read_values(options, texts=texts, languages=languages)
    found = evaluate_chain(checkpoint, against=against, device=device, progress=TerminalProgress(), **values)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        Console().print(evaluation_table(found))
