"""Kernels for CUDA, in Triton: one program takes a tile of outputs and holds their block of inputs in registers.

Registers have no index that is known only at run time, so the row of an input is the sum of the block masked to it. Divisions are rounded
correctly and only the updates of a block are fused, so that codes are those of the specification.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from laaciq.quantization.rounding_kernels.output_grids import OutputGrids
from laaciq.quantization.triton_codes import device_of

# Outputs per program, in one warp: several would wait for each other at every input.
_TILE, _WARPS = 8, 1
# Added to and subtracted from a float32 between 0 and 2²², it rounds it to an integer, half to even.
_ROUNDER = tl.constexpr(1.5 * 2**23)


def round_block(
    weights: torch.Tensor, factor: torch.Tensor, grids: OutputGrids, kept: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, outputs = weights.shape
    codes = torch.empty(weights.shape, dtype=torch.uint8, device=weights.device)
    errors = torch.empty(weights.shape, device=weights.device)
    with device_of(weights):
        _round_outputs[_programs(outputs)](
            *_adjacent(weights, factor, *grids.tensors, weights if kept is None else kept), codes, errors,
            outputs, KEPT=kept is not None, INPUTS=inputs, BLOCK=_block(inputs), TILE=_TILE,
            num_warps=_WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    return codes, errors


def refine_block(
    values: torch.Tensor, slope: torch.Tensor, coupled: torch.Tensor, grids: OutputGrids, kept: torch.Tensor | None
) -> torch.Tensor:
    inputs, outputs = values.shape
    moves = torch.empty(values.shape, device=values.device)
    with device_of(values):
        _refine_outputs[_programs(outputs)](
            *_adjacent(values, slope, coupled, *grids.tensors, values if kept is None else kept), moves,
            outputs, KEPT=kept is not None, INPUTS=inputs, BLOCK=_block(inputs), TILE=_TILE,
            num_warps=_WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    return moves


def _adjacent(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.contiguous() for tensor in tensors]


def _programs(outputs: int) -> tuple[int]:
    return (triton.cdiv(outputs, _TILE),)


def _block(inputs: int) -> int:
    return triton.next_power_of_2(inputs)


@triton.jit
def _decoded(weight, scale, zero, top):  # type: ignore[no-untyped-def]
    """The nearest code, and the weight that it stands for."""
    quotient = tl.where(scale > 0, tl.div_rn(weight, tl.where(scale > 0, scale, 1.0)), 0.0)
    code = (tl.minimum(tl.maximum(zero + quotient, 0.0), top) + _ROUNDER) - _ROUNDER
    return code, (code - zero) * scale


@triton.jit
def _round_outputs(  # type: ignore[no-untyped-def]
    weights, factor, scales, zeros, tops, groups, kept, codes, errors, outputs,
    KEPT: tl.constexpr, INPUTS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, BLOCK), tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = columns < outputs
    places = rows[:, None] * outputs + columns[None, :]
    block = tl.load(weights + places, mask=(rows < INPUTS)[:, None] & inside[None, :], other=0.0)
    top = tl.load(tops + columns, mask=inside, other=0.0)
    for i in range(INPUTS):
        weight = tl.sum(tl.where((rows == i)[:, None], block, 0.0), axis=0)
        group = tl.load(groups + i) * outputs + columns
        scale, zero = tl.load(scales + group, mask=inside, other=0.0), tl.load(zeros + group, mask=inside, other=0.0)
        code, meant = _decoded(weight, scale, zero, top)
        if KEPT:
            exact = tl.load(kept + i * outputs + columns, mask=inside, other=0.0)
            meant = tl.where(exact == exact, exact, meant)  # noqa: PLR0124  not NaN
        error = tl.div_rn(weight - meant, tl.load(factor + i * INPUTS + i))
        tl.store(codes + i * outputs + columns, code.to(tl.uint8), mask=inside)
        tl.store(errors + i * outputs + columns, error, mask=inside)
        passed = tl.load(factor + i * INPUTS + rows, mask=rows < INPUTS, other=0.0)
        block = tl.fma(-passed[:, None], error[None, :], block)


@triton.jit
def _refine_outputs(  # type: ignore[no-untyped-def]
    values, slope, coupled, scales, zeros, tops, groups, kept, moves, outputs,
    KEPT: tl.constexpr, INPUTS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, BLOCK), tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = columns < outputs
    places = rows[:, None] * outputs + columns[None, :]
    block = tl.load(slope + places, mask=(rows < INPUTS)[:, None] & inside[None, :], other=0.0)
    top = tl.load(tops + columns, mask=inside, other=0.0)
    for i in range(INPUTS):
        gradient = tl.sum(tl.where((rows == i)[:, None], block, 0.0), axis=0)
        group = tl.load(groups + i) * outputs + columns
        scale, zero = tl.load(scales + group, mask=inside, other=0.0), tl.load(zeros + group, mask=inside, other=0.0)
        value = tl.load(values + i * outputs + columns, mask=inside, other=0.0)
        pivot = tl.load(coupled + i * INPUTS + i)
        _, best = _decoded(value - tl.div_rn(gradient, pivot), scale, zero, top)
        move = best - value
        if KEPT:
            exact = tl.load(kept + i * outputs + columns, mask=inside, other=0.0)
            move = tl.where(exact == exact, 0.0, move)  # noqa: PLR0124  not NaN
        tl.store(moves + i * outputs + columns, move, mask=inside)
        passed = tl.load(coupled + i * INPUTS + rows, mask=rows < INPUTS, other=0.0)
        block = tl.fma(passed[:, None], move[None, :], block)
