"""Tables of the scale benchmark: time, memory, stages, what was announced, the aims, and what larger models would take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from statistics import median

import torch

from benchmarks.scale_fit import FAIR_ERROR, Fit, all_fits, choose_fit
from benchmarks.scale_rows import FAST, GPTQ, KINDS, PEER, STREAMED, ScaleRow
from benchmarks.scale_shapes import MEASURED, PREDICTED, Shape, find_shape
from laaciq.trials.memory import MEASURING, PAIR, PROFILING, Demand, least_bytes, taken_bytes

GIB = 2**30
# Aims: seconds, GiB, and ratios.
FAST_SECONDS, DEVICE_GIB, GPTQ_RATIO, FAST_RATIO = 360.0, 24.0, 1.0, 2.5
LARGER_RATIO, HOST_RATIO, STREAMED_GIB, ANNOUNCED_RATIO = 2.2, 1.3, 24.0, 1.5
GPUS = (1, 8, 64)
TRIALS = 64
# Commands, by what they need memory for.
DEMANDS = {
    "planned, gptq": Demand(),
    "rtn, sweep": MEASURING,
    "evaluate, another library's": PAIR,
    "profile": PROFILING,
}
# The stage that workers share by language.
DIVIDED = "measuring"
Rows = Mapping[tuple[str, str], ScaleRow]


def print_tables(rows: list[ScaleRow]) -> None:
    if not rows:
        sys.exit("there are no rows to print")
    known = {(row.size, row.kind): row for row in sorted(rows, key=_order)}
    done = {key: row for key, row in known.items() if row.failure is None}
    first = rows[0]
    print(f"\n{first.machine}. {first.tokens:,} tokens of calibration text in {first.languages} languages.\n")
    for lines in (times(known), stages(done), announcements(done), verdicts(done), predictions(done), least_memory()):
        print("\n".join(lines), end="\n\n")
    for row in known.values():
        if row.failure is not None:
            print(f"{row.size}, {KINDS[row.kind]} failed: {row.failure}")


def _order(row: ScaleRow) -> tuple[int, int]:
    return find_shape(row.size).parameters, list(KINDS).index(row.kind)


def times(rows: Rows) -> Iterator[str]:
    """Whole processes, from disk to disk."""
    yield (
        "| model | 16-bit size, GiB | | seconds | over llmcompressor's | GPU, GiB | torch's part | its tensors "
        "| host, GiB | pinned | mapped files |"
    )
    yield "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for (size, kind), row in rows.items():
        peer, memory = rows.get((size, PEER)), row.memory
        over = "–" if peer is None or peer.failure or row.failure else f"{row.seconds / peer.seconds:.2f}"
        seconds = f"{row.seconds:,.0f}" if row.failure is None else f"failed after {row.seconds:,.0f}"
        sizes = (row.device_bytes, memory.reserved, memory.allocated, memory.anonymous, memory.pinned, memory.mapped)
        cells = [size, _gib(find_shape(size).bytes), KINDS[kind], seconds, over, *map(_gib, sizes)]
        yield f"| {' | '.join(cells)} |"
    yield (
        "\nSeconds are those of the whole process, from disk to disk. GPU: all that it took, with the context of CUDA; torch's "
        "part is what its allocator held, and tensors are what it handed out. Host: memory apart from mapped files."
    )


def stages(rows: Rows) -> Iterator[str]:
    """Seconds by stage, one table for each kind, since stages differ."""
    for kind, name in KINDS.items():
        chosen = {size: row for (size, k), row in rows.items() if k == kind}
        if chosen:
            titles = dict.fromkeys(title for row in chosen.values() for title in row.stages)
            yield from ("", f"Seconds by stage, {name}:", "", f"| model | {' | '.join(titles)} | total |")
            yield f"|---|{'---:|' * (len(titles) + 1)}"
            for size, row in chosen.items():
                cells = [f"{row.stages[title]:.1f}" if title in row.stages else "–" for title in titles]
                yield f"| {size} | {' | '.join(cells)} | {row.seconds:.1f} |"


def announcements(rows: Rows) -> Iterator[str]:
    """What was announced over what then happened."""
    if not any(row.announced for row in rows.values()):
        return
    yield f"Announced beforehand, and its ratio to what then happened (aim: within {ANNOUNCED_RATIO:g}):\n"
    yield "| model | | seconds | ratio | GPU, GiB | ratio | host, GiB | ratio |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for (size, kind), row in rows.items():
        if (announced := row.announced) is not None:
            pairs = [
                (announced.seconds, row.seconds - row.announced_after, 1.0),
                (announced.device_bytes, row.device_bytes, GIB),
                (announced.host_bytes, row.memory.anonymous, GIB),
            ]
            cells = [f"{said / unit:.1f} | {_ratio(said, happened)}" for said, happened, unit in pairs]
            yield f"| {size} | {KINDS[kind]} | {' | '.join(cells)} |"
    yield ""
    for (size, kind), row in rows.items():
        if row.announced is not None:
            yield f"- {size}, {KINDS[kind]}: {row.announcement[row.announcement.find('This takes') :]}"


def _ratio(said: float, happened: float) -> str:
    if not said or not happened:
        return "–"
    ratio = said / happened
    return f"{ratio:.2f}" + ("" if 1 / ANNOUNCED_RATIO <= ratio <= ANNOUNCED_RATIO else " MISSED")


def verdicts(rows: Rows) -> Iterator[str]:
    """The aims, each reached, missed or not measured. GPU memory is all that the process takes of the GPU."""

    def value(
        size: str, kind: str, of: Callable[[ScaleRow], float], over: tuple[str, str] | None = None
    ) -> float | None:
        row, other = rows.get((size, kind)), rows.get(over) if over else None
        if row is None or (over and other is None):
            return None
        return of(row) / (of(other) if other else 1.0)

    def seconds(row: ScaleRow) -> float:
        return row.seconds

    def device(row: ScaleRow) -> float:
        return row.device_bytes / GIB

    def host(row: ScaleRow) -> float:
        return row.memory.anonymous / GIB

    def host_share(row: ScaleRow) -> float:
        return row.memory.anonymous / find_shape(row.size).bytes

    yield verdict("7B, fast, seconds", value("7B", FAST, seconds), FAST_SECONDS)
    yield verdict("7B, fast, GPU memory in GiB", value("7B", FAST, device), DEVICE_GIB)
    yield verdict("7B, GPTQ, time over llmcompressor's", value("7B", GPTQ, seconds, ("7B", PEER)), GPTQ_RATIO)
    yield verdict("7B, fast, time over llmcompressor's GPTQ", value("7B", FAST, seconds, ("7B", PEER)), FAST_RATIO)
    yield verdict("13B, fast, GPU memory in GiB", value("13B", FAST, device), DEVICE_GIB)
    yield verdict("13B, fast, time over that of 7B", value("13B", FAST, seconds, ("7B", FAST)), LARGER_RATIO)
    for size in ("7B", "13B"):
        yield verdict(f"{size}, fast, host memory over the 16-bit size", value(size, FAST, host_share), HOST_RATIO)
    yield verdict("13B, streamed, host memory in GiB", value("13B", STREAMED, host), STREAMED_GIB)
    yield verdict("13B, streamed, GPU memory in GiB", value("13B", STREAMED, device), DEVICE_GIB)


def verdict(what: str, value: float | None, most: float) -> str:
    if value is None:
        return f"- {what}: not measured (aim: at most {most:g})"
    return f"- {what}: {value:,.2f} (aim: at most {most:g}) {'reached' if value <= most else 'MISSED'}"


def least_memory() -> Iterator[str]:
    """What laaciq asks for, with all blocks but one offloaded."""
    yield "Least GPU memory, GiB, by what the command does:\n"
    yield f"| model | {' | '.join(DEMANDS)} |"
    yield f"|---|{'---:|' * len(DEMANDS)}"
    for shape in (*MEASURED.values(), *PREDICTED):
        yield f"| {shape.name} | {' | '.join(_gib(_least(shape, demand)) for demand in DEMANDS.values())} |"


def _least(shape: Shape, demand: Demand = Demand()) -> float:
    gpu = torch.device("cuda")
    return taken_bytes(least_bytes(shape.costed(), gpu, torch.bfloat16.itemsize, demand), gpu)


def predictions(rows: Rows) -> Iterator[str]:
    """Fits of time over the measured sizes, and what they say of larger models."""
    for kind in (FAST, GPTQ, PEER):
        fits = all_fits({find_shape(size): row.seconds for (size, k), row in rows.items() if k == kind})
        fit = choose_fit(fits)
        if fit is None:
            yield f"{KINDS[kind]}, seconds: too few sizes for a fit"
            continue
        yield f"{KINDS[kind]}, seconds = {fit}; within {fit.error:.0%} of each size that is left out"
        fair = [fit for fit in fits if fit.error <= FAIR_ERROR]
        if kind == FAST and fair:
            yield from _larger(fair, [row for (_, k), row in rows.items() if k == FAST])


def _larger(fits: list[Fit], rows: list[ScaleRow]) -> Iterator[str]:
    """What all `fits` say, from least to most. A share of the time is measuring, which workers divide by language."""
    share, languages = median(row.stages.get(DIVIDED, 0.0) / row.seconds for row in rows), rows[0].languages
    yield (
        f"\nPredicted for `--effort fast`, far beyond what was measured. Ranges are those of {len(fits)} forms of growth, each within "
        f"{FAIR_ERROR:.0%} of every measured size that is left out of its fit. Offloaded weights are assumed to lie in host memory. Workers "
        f"share languages and trials, nothing else: profile, curvature, rounding and tuning of one plan stay on one GPU. So of one "
        f"quantization only measuring is divided ({share:.1%} of the time, over at most {languages} languages); {TRIALS} quantizations are "
        f"divided whole. Every GPU's process holds the model. Least GPU memory is what laaciq asks for.\n"
    )
    yield (
        "| model | 16-bit size, GiB | least GPU memory, GiB "
        + "".join(f"| one, {gpus} GPU{'s' * (gpus > 1)} " for gpus in GPUS)
        + "".join(f"| {TRIALS}, {gpus} GPU{'s' * (gpus > 1)} " for gpus in GPUS)
        + "|"
    )
    yield f"|---|{'---:|' * (2 + 2 * len(GPUS))}"
    for shape in PREDICTED:
        ends = min(fit(shape) for fit in fits), max(fit(shape) for fit in fits)
        parts = [1 - share + share / min(gpus, languages) for gpus in GPUS] + [ceil(TRIALS / gpus) for gpus in GPUS]
        spans = [" to ".join(_hours(part * seconds) for seconds in ends) for part in parts]
        yield f"| {shape.name} | {_gib(shape.bytes)} | {_gib(_least(shape))} | {' | '.join(spans)} |"


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _gib(count: float) -> str:
    return f"{count / GIB:.1f}"
