"""Random blocks of inputs, rounded and refined by a kernel and by the specification.

As a program, with a device, it compares the Triton kernels: with `TRITON_INTERPRET=1` in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from laaciq.quantization.grid import Grid, extremes, grid_between, group
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.kept import KeptWeights
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.rounding_kernels import RoundingKernels, plain
from laaciq.quantization.rounding_kernels.output_grids import OutputGrids
from laaciq.quantization.stacked import StackedMatrices

# Outputs, inputs, bits, group size, symmetric, percent kept.
FEW = [
    (1, 1, 4, 32, False, 0.0),
    (13, 37, 3, 8, False, 10.0),
    (8, 40, 4, "channel", True, 0.0),
    (5, 33, 2, "tensor", True, 5.0),
    (9, 16, 8, 16, False, 0.0),
]


def make_stack(seed, outputs, inputs, bits, group_size, symmetric, keep, device="cpu"):
    """The matrix has groups of zeros, whose scale is zero; the inputs are correlated."""
    random = torch.Generator().manual_seed(seed)
    matrix = torch.randn(outputs, inputs, generator=random)
    matrix[::3, : inputs // 2] = 0
    plan = TensorPlan(
        name="w", shape=(outputs, inputs), bits=bits, group_size=group_size, symmetric=symmetric, keep=keep
    )
    kept = KeptWeights.of(matrix, matrix.abs(), plan.kept) if plan.kept else None
    rest = matrix if kept is None else kept.put_into(matrix, 0.0)
    grid = grid_between(*extremes(group(rest, plan), plan), plan, torch.float16)
    rows = torch.randn(2 * inputs, inputs, generator=random) + torch.randn(2 * inputs, 1, generator=random)
    rows = rows * (0.1 + torch.rand(inputs, generator=random))
    moved = [None if part is None else part.to(device) for part in (grid.zeros, *(vars(kept).values() if kept else ()))]
    zeros, *others = moved
    stack = StackedMatrices.of(
        matrix.to(device), Grid(grid.scales.to(device), zeros), plan, KeptWeights(*others) if others else None
    )
    return stack, Hessian((rows.T @ rows / len(rows)).to(device))


@dataclass(frozen=True)
class Compared:
    """Whether each output has the same codes, whether it moves to the same values, and the largest difference of errors where codes are the
    same.
    """

    same_codes: torch.Tensor
    same_moves: torch.Tensor
    difference: float


def compare(kernels: RoundingKernels, stack: StackedMatrices, hessian: Hessian) -> Compared:
    """One block. Refinement starts from random codes, so that every weight moves far."""
    ordered, factor = stack.at(hessian.order), hessian.inverse_factor
    codes, errors = plain.round_block(ordered.weights, factor, ordered.grids, ordered.kept)
    other, other_errors = kernels.round_block(ordered.weights, factor, ordered.grids, ordered.kept)
    same = (codes == other).all(0)
    random = torch.Generator().manual_seed(0)
    share = torch.rand(codes.shape, generator=random).to(codes.device)
    values = ordered.grids.by_input().decode((share * ordered.grids.tops).round())
    if ordered.kept is not None:
        values = values.where(ordered.kept.isnan(), ordered.kept)
    damped = hessian.damped[hessian.order][:, hessian.order]
    arguments = (values, damped @ (values - ordered.weights), damped, ordered.grids, ordered.kept)
    moves, other_moves = plain.refine_block(*arguments), kernels.refine_block(*arguments)
    difference = (errors - other_errors)[:, same].abs().max() / errors.abs().max().clamp_min(1e-30)
    return Compared(same, (moves - other_moves).abs().amax(0) < 1e-4, float(difference) if same.any() else 0.0)


def halves(kernels: RoundingKernels, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Weights half-way between codes, that pass nothing on: the codes, and those of torch."""
    weights = (torch.arange(-3.0, 20.0) + 0.5).repeat(3, 1).to(device)
    ones = torch.ones(1, weights.shape[1], device=device)
    grids = OutputGrids(ones, 0 * ones, 15 * ones[0], torch.zeros(3, dtype=torch.int32, device=device))
    codes, _ = kernels.round_block(weights, torch.eye(3, device=device), grids, None)
    return codes, weights.round().clamp(0, 15).to(torch.uint8)


def main(device: str) -> None:
    from laaciq.quantization.rounding_kernels import triton_cuda

    if not torch.equal(*halves(triton_cuda, device)):
        raise SystemExit("half is not rounded to even")
    for seed, case in enumerate(FEW):
        compared = compare(triton_cuda, *make_stack(seed, *case, device=device))
        if not (compared.same_codes.all() and compared.same_moves.all() and compared.difference < 1e-4):
            raise SystemExit(f"{case}: {compared}")


if __name__ == "__main__":
    main(*sys.argv[1:])
