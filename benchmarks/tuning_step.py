"""Time of a step of tuning, beside torch's own checkpointing of blocks, and what it goes into.

    python -m benchmarks.tuning_step                                # on the GPU if there is one: blocks of a model with 7 billion weights
    python -m benchmarks.tuning_step --shape 256x512x4 --device cpu

A Llama of random weights with a few blocks is rounded to nearest at 4 bits in groups of 64. A step runs the student forward and backward on one
batch, in bfloat16 and then in float32. *Started* is the time until Python has started all operations, *whole* until all are done: where the two
are equal, the device waits for Python. *Computed* is the sum over the device's kernels.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.scale_shapes import find_shape
from laaciq.engine.fast_products import fast_products
from laaciq.models import LanguageModel, find_model, load
from laaciq.models.recomputing import recorded_first, recorded_last
from laaciq.options import WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.quantization.model import quantize_layers
from laaciq.quantization.stored_layers import StoredLayers
from laaciq.quantization.student import Student
from laaciq.quantization.tuning import STEP_TOKENS, tuned_bytes
from laaciq.scoring.operations import ModelShape

ROWS = 4
WAYS = {"recorded last (ours)": recorded_last, "torch.utils.checkpoint": recorded_first}
# Kernels that are listed.
LISTED = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", default="4096x11008x4", help="hidden x feed-forward x blocks")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=20, help="after three that are not timed; the median counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shape = find_shape(options.shape)
        shape.write(Path(folder, "model"))
        model = load(find_model(Path(folder, "model")), device=options.device)
        with fast_products():
            print_steps(model, shape.blocks, options.steps)


def print_steps(model: LanguageModel, blocks: int, steps: int) -> None:
    plan = make_plans(model.anatomy, WeightOptions(method="rtn"), None).first
    layers = StoredLayers.of(quantize_layers(model, plan), model.device).nearer(
        beside=tuned_bytes(ModelShape.of(model.kind, model.anatomy))
    )
    student = Student(model, layers, recompute=True)
    ids = torch.arange(STEP_TOKENS, device=model.device).reshape(ROWS, -1)

    def step(products: torch.dtype = torch.bfloat16) -> None:
        with student.multiplying_in(products):
            logits = student(input_ids=ids, use_cache=False).logits
            logits.backward(torch.ones_like(logits))
        student.zero_grad()

    print(f"{model.device}, {STEP_TOKENS} tokens, {blocks} blocks. Milliseconds per block:")
    wholes: dict[str, float] = {}
    for name, way in WAYS.items():
        student.offloaded.recomputing = way
        wholes[name] = print_times(name, step, steps, blocks, model.device)
    ours, peer = wholes.values()
    print(f"Ours over {list(WAYS)[1]}: {ours / peer:.2f}")
    student.offloaded.recomputing = recorded_last
    print_kernels(step, blocks, model.device)
    in_float32 = partial(step, torch.float32)
    whole = print_times("ours in float32", in_float32, steps, blocks, model.device)
    print(f"bfloat16 over float32: {ours / whole:.2f}")
    print_kernels(in_float32, blocks, model.device)


def print_times(name: str, step: Callable[[], None], steps: int, blocks: int, device: torch.device) -> float:
    """Milliseconds per block until everything is done."""
    started, whole = (1e3 * seconds / blocks for seconds in timed(step, steps, device))
    print(f"{name:24} started {started:6.2f}  whole {whole:6.2f}", flush=True)
    return whole


def timed(step: Callable[[], None], steps: int, device: torch.device) -> tuple[float, float]:
    """Seconds until everything is started, and until everything is done."""
    for _ in range(3):
        step()
    started, whole = [], []
    for _ in range(steps):
        _synchronize(device)
        began = time.perf_counter()
        step()
        started.append(time.perf_counter() - began)
        _synchronize(device)
        whole.append(time.perf_counter() - began)
    return median(started), median(whole)


def print_kernels(step: Callable[[], None], blocks: int, device: torch.device) -> None:
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiled:
        step()
        _synchronize(device)
    spent = [
        ((event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e3 / blocks, event.count, event.key)
        for event in profiled.key_averages()
    ]
    print(f"Computed: {sum(row[0] for row in spent):.2f}, of which")
    for milliseconds, count, name in sorted(spent, reverse=True)[:LISTED]:
        print(f"{milliseconds:8.3f} in {count:5} calls  {name[:90]}")


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
