"""`laaciq evaluate`: a quantized model made by anyone, against its original."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from laaciq.cli import options as shared
from laaciq.options import RunOptions

DEFAULTS = RunOptions()


def evaluate(
    checkpoint: Annotated[
        str, typer.Argument(help="The quantized model: what transformers loads, or a run's checkpoint.")
    ],
    against: Annotated[str, typer.Option(help="The original model.")],
    texts: shared.TextSource = DEFAULTS.texts,
    languages: shared.Languages = None,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    window: shared.Window = None,
    chat: shared.Chat = False,
    served_bound: shared.ServedBound = DEFAULTS.served_bound,
    seed: shared.Seed = DEFAULTS.seed,
) -> None:
    """Measure what a quantized model loses in each language."""
    from laaciq.chain import evaluate as evaluate_chain
    from laaciq.cli.tables import evaluation_table
    from laaciq.engine.progress import Bars

    found = evaluate_chain(
        checkpoint,
        against=against,
        texts=texts,
        languages=shared.split_names(languages),
        device=device,
        window=window,
        chat=chat,
        served_bound=served_bound,
        seed=seed,
        progress=Bars(),
    )
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        Console().print(evaluation_table(found))
