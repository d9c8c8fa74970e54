"""`laaciq bench`: speed and memory of a quantized checkpoint beside its original."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from laaciq import speed
from laaciq.cli import options as shared
from laaciq.cli.printing import print_json, print_table
from laaciq.commands.bench import bench as bench_verb
from laaciq.engine.progress import TerminalProgress
from laaciq.options import BenchOptions


@shared.takes(BenchOptions)
def bench(as_json: shared.AsJson = False, device: shared.Device = "auto", **given: Any) -> None:
    """Measure tokens per second and memory of a quantized checkpoint beside its original."""
    result = bench_verb(**given, device=device, progress=TerminalProgress())
    if as_json:
        print_json(result)
    else:
        print_table(bench_table(result))


def bench_table(result: speed.Bench) -> RenderableType:
    options = result.options
    threads = f", {result.threads} threads" if result.device == "cpu" else ""
    title = f"{result.original.model} → {result.quantized.model}: {result.dtype} on {result.device}{threads}"
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("original", "quantized", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = (
        ("prefill, tokens/s", "prefill", 1),
        ("decoding, tokens/s", "decoding", 1),
        ("decoding compiled, tokens/s", "compiled_decoding", 1),
        ("weights in memory, MB", "weight_bytes", 10**6),
        ("peak on CUDA, MB", "peak_bytes", 10**6),
    )
    for label, name, unit in rows:
        ratio = getattr(result.ratios, name)
        if ratio is not None:
            both = (f"{getattr(measured, name) / unit:,.1f}" for measured in (result.original, result.quantized))
            table.add_row(label, *both, f"{ratio:.2f}")
    rounds = (
        f"Medians of {result.rounds} rounds in turn, batch {options.batch}, {options.prompt_tokens} prompt tokens, "
        f"{options.new_tokens} new tokens."
    )
    return Group(
        Text(title, style="italic"),
        table,
        Text(rounds, style="dim"),
        *(Text(line) for line in _kernel_lines(result) + _compile_lines(result)),
    )


def _kernel_lines(result: speed.Bench) -> list[str]:
    kernels = result.kernels
    if kernels is None:
        return ["Not a laaciq checkpoint: it runs on the kernels of the library that made it."]
    lines = [
        f"{kernels.triton} layers run on Triton kernels, {kernels.int4} on torch's int4 kernel, {kernels.dequantized} on dequantized weights."
    ]
    lines += [f"{count} dequantized, which is slow: {reason}." for reason, count in kernels.reasons.items()]
    if kernels.dequantized:
        lines.append("Dequantized weights lie in memory beside their codes: they save room on disk alone.")
    if kernels.few_tokens is not None:
        tokens = "one token" if kernels.few_tokens == 1 else f"{kernels.few_tokens} tokens"
        lines.append(
            f"With more than {tokens} at a time, such as a prompt, layers on Triton kernels dequantize for each product, which is faster."
        )
    return lines


def _compile_lines(result: speed.Bench) -> list[str]:
    lines = [f"{model} is not compiled: {reason}." for model, reason in result.not_compiled.items()]
    if result.ratios.compiled_decoding is not None:
        lines.append("Compiled decoding uses torch.compile and a static cache; the prompt is not compiled.")
    return lines
