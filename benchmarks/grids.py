"""How fast our grid search is, beside HQQ and llmcompressor's MSE observer on the same matrices, and how close each comes to the weights.

    python3 -m venv .venv-peers
    .venv-peers/bin/pip install -r benchmarks/peers.txt -e .
    .venv-peers/bin/python -m benchmarks.grids
    .venv-peers/bin/python -m benchmarks.grids --bits 3 --group-size 128 --rounds 5 --json

That environment is not `constraints.txt`'s: llmcompressor wants an older transformers. If a peer is not installed, its row shows the reason.

All run in one process on one thread, in turn, after a warm-up. What is timed leads from float32 weights to codes, without packing. Speed is by
CPU time, so that other programs on the machine matter little, and is the median of the rounds. The error is Σ(w − Q(w))² / Σw².
Ours is with scales rounded to the 16 bits that are stored; the peers' scales and zero points stay in float32, which favours them.
A peer's ratio is the speed of our `mse` rule on the same kind of grid, symmetric or affine, over the peer's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from laaciq.options import BITS
from laaciq.options.methods import Clip
from laaciq.quantization import quantize_matrix
from laaciq.quantization.calibration import TensorCalibration
from laaciq.quantization.plan import TensorPlan

SHAPES = [(1024, 1024), (4096, 1024)]
# Of weights in a model: HQQ's iteration depends on it.
SPREAD = 0.02
LANGUAGES = 8
RATIO_TARGET = 1.0


@dataclass(frozen=True)
class TimedQuantizer:
    """`quantize` is what is timed; `dequantize` makes weights of what it returns. `bits_per_weight` counts scales and zero points."""

    name: str
    symmetric: bool
    bits_per_weight: float
    quantize: Callable[[torch.Tensor], Any]
    dequantize: Callable[[Any], torch.Tensor]
    ours: bool = False


@dataclass
class TimedRow:
    matrix: str
    name: str
    symmetric: bool
    bits_per_weight: float
    weights_per_second: float
    relative_error: float
    ratio: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bits", type=int, choices=BITS, default=4)
    parser.add_argument("--group-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    options = parser.parse_args()
    if any(inputs % options.group_size for _, inputs in SHAPES):
        parser.error(f"--group-size {options.group_size} does not divide the matrices' inputs: HQQ needs that")

    torch.set_num_threads(1)
    # llmcompressor logs to what standard output is when it is imported.
    with contextlib.redirect_stdout(sys.stderr):
        peers, missing = _peers(options.bits, options.group_size)
    rows: list[TimedRow] = []
    for name, matrix in _matrices():
        candidates = _ours(matrix.shape, options.bits, options.group_size) + peers
        rows += _with_ratios(_measure(name, matrix, candidates, options.rounds), candidates)
    if options.json:
        print(json.dumps({**vars(options), "rows": [asdict(row) for row in rows], "missing": missing}, indent=2))
    else:
        print(f"{options.bits} bits, groups of {options.group_size}, {options.rounds} rounds on one thread\n")
        _print_table(rows, missing)


def _matrices() -> list[tuple[str, torch.Tensor]]:
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random)

    matrices = []
    for outputs, inputs in SHAPES:
        matrices.append((f"Gaussian {outputs}×{inputs}", SPREAD * normal(outputs, inputs)))
        # Five degrees of freedom: κ = 6, a heavy tail.
        tails = normal(outputs, inputs) / normal(5, outputs, inputs).square().mean(0).sqrt()
        matrices.append((f"Student t(5) {outputs}×{inputs}", SPREAD * tails))
    return matrices


def _ours(shape: torch.Size, bits: int, group_size: int) -> list[TimedQuantizer]:
    mean_squares = torch.randn(LANGUAGES, shape[1], generator=torch.Generator().manual_seed(1)).exp()
    calibration = TensorCalibration(mean_squares / mean_squares.mean(1, keepdim=True), effective_kurtosis=0.0)

    def candidate(clip: Clip, symmetric: bool) -> TimedQuantizer:
        outputs, inputs = shape
        plan = TensorPlan(
            name="w", shape=(outputs, inputs), bits=bits, group_size=group_size, symmetric=symmetric, clip=clip
        )
        name = f"ours, {clip}" + (f" of {LANGUAGES} languages" if clip == "minimax" else "")
        return TimedQuantizer(
            name,
            symmetric,
            plan.stored_bits / plan.weights,
            lambda matrix: quantize_matrix(matrix, plan, calibration),
            lambda quantized: quantized.dequantize(plan),
            ours=True,
        )

    return [candidate("minmax", True), candidate("mse", True), candidate("mse", False), candidate("minimax", True)]


def _peers(bits: int, group_size: int) -> tuple[list[TimedQuantizer], dict[str, str]]:
    """Those that are installed, and of the others why they are not measured."""
    candidates: list[TimedQuantizer] = []
    missing: dict[str, str] = {}
    for name, peer in (("HQQ", _hqq), ("llmcompressor, mse", _llmcompressor)):
        try:
            candidates.append(peer(name, bits, group_size))
        except ImportError as error:
            missing[name] = str(error)
    return candidates, missing


def _hqq(name: str, bits: int, group_size: int) -> TimedQuantizer:
    from hqq.core.quantize import Quantizer

    def quantize(matrix: torch.Tensor) -> Any:
        return Quantizer.quantize(
            matrix, nbits=bits, group_size=group_size, optimize=True, axis=1, bitpack=False, device="cpu"
        )

    def dequantize(quantized: Any) -> torch.Tensor:
        codes, meta = quantized
        return Quantizer.dequantize(codes, {**meta, "compute_dtype": torch.float32})

    # Its zero point is no integer: 16 bits, as the scale.
    return TimedQuantizer(name, False, bits + 32 / group_size, quantize, dequantize)


def _llmcompressor(name: str, bits: int, group_size: int) -> TimedQuantizer:
    import compressed_tensors.quantization as tensors
    from llmcompressor.observers import Observer

    scheme = tensors.QuantizationArgs(
        num_bits=bits, type="int", symmetric=True, strategy="group", group_size=group_size, observer="mse"
    )

    def quantize(matrix: torch.Tensor) -> Any:
        observer = Observer.load_from_registry("mse", base_name="weight", args=scheme)
        grid = observer(matrix).get_qparams()
        return tensors.quantize(matrix, grid["scale"], grid["zero_point"], scheme, dtype=torch.int8), grid["scale"]

    def dequantize(quantized: Any) -> torch.Tensor:
        codes, scales = quantized
        return tensors.dequantize(codes, scales, args=scheme, dtype=torch.float32)

    return TimedQuantizer(name, True, bits + 16 / group_size, quantize, dequantize)


def _measure(name: str, matrix: torch.Tensor, candidates: list[TimedQuantizer], rounds: int) -> list[TimedRow]:
    errors = [_relative_error(candidate, matrix) for candidate in candidates]  # the warm-up too
    seconds: list[list[float]] = [[] for _ in candidates]
    for _ in range(rounds):
        for candidate, taken in zip(candidates, seconds, strict=True):
            began = time.process_time()
            candidate.quantize(matrix)
            taken.append(time.process_time() - began)
    return [
        TimedRow(name, c.name, c.symmetric, c.bits_per_weight, matrix.numel() / statistics.median(taken), error)
        for c, taken, error in zip(candidates, seconds, errors, strict=True)
    ]


def _relative_error(candidate: TimedQuantizer, matrix: torch.Tensor) -> float:
    back = candidate.dequantize(candidate.quantize(matrix))
    return float((back - matrix).double().square().sum() / matrix.double().square().sum())


def _with_ratios(rows: list[TimedRow], candidates: list[TimedQuantizer]) -> list[TimedRow]:
    mse = {row.symmetric: row.weights_per_second for row in rows if row.name == "ours, mse"}
    for row, candidate in zip(rows, candidates, strict=True):
        row.ratio = None if candidate.ours else mse[row.symmetric] / row.weights_per_second
    return rows


def _print_table(rows: list[TimedRow], missing: dict[str, str]) -> None:
    print(f"{'matrix':24}{'search':32}{'grid':12}{'bits/weight':>12}{'M weights/s':>13}{'ours/peer':>11}{'error':>10}")
    for row in rows:
        kind = "symmetric" if row.symmetric else "affine"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        speed = f"{row.weights_per_second / 1e6:.1f}"
        print(
            f"{row.matrix:24}{row.name:32}{kind:12}{row.bits_per_weight:12.2f}{speed:>13}{ratio:>11}{row.relative_error:10.5f}"
        )
    for name, reason in missing.items():
        print(f"{'':24}{name:32}not measured: {reason}")
    against_hqq = [row.ratio for row in rows if row.name == "HQQ" and row.ratio is not None]
    if against_hqq:
        print(f"\nours/HQQ at least {min(against_hqq):.2f} (target {RATIO_TARGET:g})")


if __name__ == "__main__":
    main()
