"""The specification of the kernels, in torch: a handful of operations per input."""

from __future__ import annotations

import torch

from laaciq.quantization.rounding_kernels.output_grids import OutputGrids


def round_block(
    weights: torch.Tensor, factor: torch.Tensor, grids: OutputGrids, kept: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    remaining, codes, errors = weights.clone(), torch.empty_like(weights), torch.empty_like(weights)
    # Views are made together: one by one they would take as long as the arithmetic.
    rows = zip(grids.by_input().rows(), remaining.unbind(), factor.diagonal().unbind(), errors.unbind(), strict=True)
    for i, (grid, weight, pivot, error) in enumerate(rows):
        codes[i] = grid.encode(weight)
        meant = grid.decode(codes[i])
        if kept is not None:
            meant = torch.where(kept[i].isnan(), meant, kept[i])
        torch.sub(weight, meant, out=error).div_(pivot)
        remaining[i + 1 :].addr_(factor[i, i + 1 :], error, alpha=-1)
    return codes.to(torch.uint8), errors


def refine_block(
    values: torch.Tensor, slope: torch.Tensor, coupled: torch.Tensor, grids: OutputGrids, kept: torch.Tensor | None
) -> torch.Tensor:
    here, moves = slope.clone(), torch.empty_like(slope)
    parts = (values, here, moves, coupled, coupled.diagonal())
    rows = zip(grids.by_input().rows(), *(part.unbind() for part in parts), strict=True)
    for i, (grid, value, gradient, move, row, pivot) in enumerate(rows):
        best = grid.decode(grid.encode(value - gradient / pivot))
        torch.sub(best, value, out=move)
        if kept is not None:
            move.masked_fill_(~kept[i].isnan(), 0.0)
        here.addr_(row, move)
    return moves
