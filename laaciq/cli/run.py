"""`laaciq run`: the whole chain in one command."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from laaciq.cli import options as shared
from laaciq.options import RunOptions

DEFAULTS = RunOptions()


def run(
    model: Annotated[
        str, typer.Argument(help="Folder, .gguf file or hub name; 'reference' is the embedded one.")
    ] = DEFAULTS.model,
    texts: shared.TextSource = DEFAULTS.texts,
    languages: shared.Languages = None,
    bits: Annotated[int, typer.Option(help="2, 3, 4, 6 or 8.")] = DEFAULTS.bits,
    group_size: Annotated[str, typer.Option(help="Inputs that share a scale: a number, 'channel' or 'tensor'.")] = str(
        DEFAULTS.group_size
    ),
    symmetric: Annotated[bool, typer.Option("--symmetric/--affine", help="Kind of grid.")] = DEFAULTS.symmetric,
    method: Annotated[str, typer.Option(help="How weights become codes.")] = DEFAULTS.method,
    out: shared.Out = None,
    as_json: shared.AsJson = False,
    device: shared.Device = "auto",
    window: shared.Window = None,
    chat: shared.Chat = False,
    generate: Annotated[bool, typer.Option("--generate", help="Also compare greedy continuations.")] = False,
    numeric_check: Annotated[
        bool, typer.Option("--numeric-check", help="Also measure the original against itself in another precision.")
    ] = False,
    served_bound: shared.ServedBound = DEFAULTS.served_bound,
    seed: shared.Seed = DEFAULTS.seed,
) -> None:
    """Quantize a model, measure what each language loses, and write a report. Run again, it resumes."""
    # Heavy imports wait until a command needs them, so that --help answers at once.
    from laaciq.chain import run_chain
    from laaciq.cli.tables import evaluation_table, generation_table
    from laaciq.engine.progress import Bars

    chosen = RunOptions(
        model=model,
        texts=texts,
        languages=None if languages is None else tuple(shared.split_names(languages) or ()),
        bits=bits,
        group_size=shared.group_size(group_size),
        symmetric=symmetric,
        method=method,
        window=window,
        chat=chat,
        generate=generate,
        numeric_check=numeric_check,
        served_bound=served_bound,
        seed=seed,
    )
    folder = out or chosen.default_folder
    result = run_chain(chosen, out=folder, device=device, progress=Bars())
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
        return
    console = Console()
    console.print(evaluation_table(result.evaluation))
    if result.generation is not None:
        console.print(generation_table(result.generation))
    if (noise := result.numeric_noise) is not None:
        console.print(
            f"Numeric noise, {noise.precision} against {noise.other}: at most {noise.largest:.1e} nats a token ({noise.language}).",
            highlight=False,
        )
    console.print(f"Predicted: {result.screening.risk}. {result.screening.prediction}", highlight=False)
    size = result.plan.size
    console.print(
        f"Size: {size.block_bits_per_weight:.2f} bits a weight in the blocks, {size.model_bytes / 1e6:.1f} MB in all "
        f"(original in 16 bits {size.original_model_bytes / 1e6:.1f} MB, {size.compression:.1f} times smaller).",
        highlight=False,
    )
    console.print(f"Report: {folder / 'report.html'}", soft_wrap=True, highlight=False)
    console.print(f"Next: laaciq check {folder} --max-D 0.05 --max-disparity 0.03", soft_wrap=True, highlight=False)
