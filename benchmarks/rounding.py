"""Time of second-order rounding and of refinement with the kernels of this device, beside the plain loop over inputs.

    python -m benchmarks.rounding                              # on the GPU if there is one
    python -m benchmarks.rounding --device cpu --threads 1
    python -m benchmarks.rounding --shapes 4096x4096 4096x11008

Matrices are random, at 4 bits in groups of 64, and their inputs correlated. Factors of the second moments are timed apart: layers that read
the same input share them. *Differing codes* is the share that the plain loop sets otherwise: a weight half-way between two codes may go
either way, and moves those after it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from laaciq.quantization.compensation import refine_codes
from laaciq.quantization.grid import extremes, grid_between, group
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.rounding_kernels import BLOCK, RoundingKernels, plain
from laaciq.quantization.second_order import round_second_order
from laaciq.quantization.stacked import StackedMatrices

# Outputs x inputs: of models with 1 and 7 billion weights, query, key and value together, gate and up together, down. On a CPU, smaller ones.
CUDA_SHAPES = ["2560x2048", "11264x2048", "2048x5632", "12288x4096", "4096x4096", "22016x4096", "4096x11008"]
CPU_SHAPES = ["1024x384", "384x1024", "4096x1024"]
HEADING = f"{'kernel':>9}{'plain':>9}{'ratio':>8}"
Result = TypeVar("Result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", nargs="+", help="outputs x inputs")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of the CPU")
    parser.add_argument("--rounds", type=int, default=3, help="the fastest counts; the plain loop runs once")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    print(torch.cuda.get_device_name(device) if cuda else f"CPU, {options.threads} threads")
    stack, hessian = make_case(64, BLOCK, device)
    compiling, _ = timed(lambda: refine_codes(stack, round_second_order(stack, hessian), hessian), device)
    print(f"First call: {compiling:.1f} s. Below, milliseconds per matrix.")
    print(f"{'':14}{'':>9} |{'round':^27}|{'refine':^27}|{'differing codes':^17}")
    print(f"{'shape':14}{'factors':>9} |{2 * (HEADING + ' |')}{'rounded':>8}{'refined':>8}")
    for shape in options.shapes or (CUDA_SHAPES if cuda else CPU_SHAPES):
        print(f"{shape:14}{measure(shape, device, options.rounds)}", flush=True)


def measure(shape: str, device: torch.device, rounds: int) -> str:
    """The row of a shape."""
    outputs, inputs = map(int, shape.split("x"))
    stack, hessian = make_case(outputs, inputs, device)
    factors, _ = timed(lambda: hessian.inverse_factor, device)
    start = round_second_order(stack, hessian)
    steps: list[Callable[[RoundingKernels | None], torch.Tensor]] = [
        lambda kernels: round_second_order(stack, hessian, kernels),
        lambda kernels: refine_codes(stack, start, hessian, kernels),
    ]
    columns, differing = f"{1e3 * factors:9.1f} |", ""
    for step in steps:
        fast, codes = min((timed(lambda: step(None), device) for _ in range(rounds)), key=lambda result: result[0])  # noqa: B023
        slow, others = timed(lambda: step(plain), device)  # noqa: B023
        columns += f"{1e3 * fast:9.1f}{1e3 * slow:9.1f}{slow / fast:7.1f}x |"
        differing += f"{float((codes != others).double().mean()):8.0e}"
    return columns + differing


def make_case(outputs: int, inputs: int, device: torch.device) -> tuple[StackedMatrices, Hessian]:
    random = torch.Generator(device).manual_seed(0)
    matrix = torch.randn(outputs, inputs, generator=random, device=device)
    plan = TensorPlan(name="w", shape=(outputs, inputs), bits=4, group_size=64, symmetric=False)
    grid = grid_between(*extremes(group(matrix, plan), plan), plan, torch.float16)
    rows = torch.randn(2 * inputs, inputs, generator=random, device=device)
    rows += torch.randn(2 * inputs, 1, generator=random, device=device)
    rows *= 0.1 + torch.rand(inputs, generator=random, device=device)
    return StackedMatrices.of(matrix, grid, plan), Hessian(rows.T @ rows / len(rows))


def timed(act: Callable[[], Result], device: torch.device) -> tuple[float, Result]:
    """Seconds that it takes, until the device has finished, and its result."""
    wait(device)
    began = time.perf_counter()
    result = act()
    wait(device)
    return time.perf_counter() - began, result


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
