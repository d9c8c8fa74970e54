"""Kernels for the CPU, compiled by numba: threads take tiles of outputs, whose block of inputs stays in the fastest cache.

Results depend neither on the number of threads nor on the tiles: every output is computed alone, always in the same order, and products are
added without rounding in between (fused), as torch does it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import torch
from numba.extending import intrinsic

from laaciq.engine.compiled import compiled
from laaciq.quantization.rounding_kernels.output_grids import OutputGrids

# Outputs per tile: 128 inputs of them take 32 kB.
_TILE = 64
# Weights per thread that are worth starting one.
_THREAD_WEIGHTS = 2**15


def round_block(
    weights: torch.Tensor, factor: torch.Tensor, grids: OutputGrids, kept: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    codes, errors = torch.empty(weights.shape, dtype=torch.uint8), torch.empty(weights.shape)
    _over_outputs(_round_outputs, weights, factor, *grids.tensors, _or_empty(kept), codes, errors)
    return codes, errors


def refine_block(
    values: torch.Tensor, slope: torch.Tensor, coupled: torch.Tensor, grids: OutputGrids, kept: torch.Tensor | None
) -> torch.Tensor:
    moves = torch.empty(values.shape)
    _over_outputs(_refine_outputs, values, slope, coupled, *grids.tensors, _or_empty(kept), moves)
    return moves


def _over_outputs(kernel: Callable[..., None], block: torch.Tensor, *others: torch.Tensor) -> None:
    """Run the kernel on shares of the block's outputs in as many threads as torch uses.

    The threads live as long as this call. Those of numba outlive it, and a process that forks afterwards is killed when it uses them.
    """
    outputs = block.shape[1]
    # With adjacent elements all of them, so that each kernel is compiled once.
    arrays = [tensor.contiguous().numpy() for tensor in (block, *others)]
    threads = max(1, min(torch.get_num_threads(), block.numel() // _THREAD_WEIGHTS))
    if threads == 1:
        kernel(*arrays, 0, outputs)
        return
    share = -(-outputs // (_TILE * threads)) * _TILE
    starts = range(0, outputs, share)
    with ThreadPoolExecutor(threads) as pool:
        tasks = [pool.submit(kernel, *arrays, start, min(start + share, outputs)) for start in starts]
    for task in tasks:
        task.result()


def _or_empty(kept: torch.Tensor | None) -> torch.Tensor:
    return torch.empty(0, 0) if kept is None else kept


def _fma(typing_context: Any, factor: Any, other: Any, added: Any) -> Any:
    """The instruction for factor·other + added, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return numba.float32(numba.float32, numba.float32, numba.float32), generate


_fused: Callable[..., float] = intrinsic(_fma)


@compiled
def _code(weight, scale, zero, top):  # type: ignore[no-untyped-def]
    quotient = weight / scale if scale > 0 else np.float32(0)
    return min(max(np.rint(zero + quotient), np.float32(0)), top)


@compiled
def _round_outputs(weights, factor, scales, zeros, tops, groups, kept, codes, errors, start, stop):  # type: ignore[no-untyped-def]
    inputs = len(weights)
    # Rows are as long as a tile, also where fewer outputs are left: loops of constant length are faster.
    tile, error = np.zeros((inputs, _TILE), np.float32), np.zeros(_TILE, np.float32)
    for first in range(start, stop, _TILE):
        width = min(_TILE, stop - first)
        for i in range(inputs):
            for o in range(width):
                tile[i, o] = weights[i, first + o]
        for i in range(inputs):
            group, pivot = groups[i], factor[i, i]
            for o in range(width):
                output = first + o
                scale, zero = scales[group, output], zeros[group, output]
                code = _code(tile[i, o], scale, zero, tops[output])
                meant = (code - zero) * scale
                if len(kept) and not np.isnan(kept[i, output]):
                    meant = kept[i, output]
                error[o] = (tile[i, o] - meant) / pivot
                codes[i, output] = code
                errors[i, output] = error[o]
            for j in range(i + 1, inputs):
                passed = -factor[i, j]
                for o in range(_TILE):
                    tile[j, o] = _fused(passed, error[o], tile[j, o])


@compiled
def _refine_outputs(values, slope, coupled, scales, zeros, tops, groups, kept, moves, start, stop):  # type: ignore[no-untyped-def]
    inputs = len(values)
    tile, move = np.zeros((inputs, _TILE), np.float32), np.zeros(_TILE, np.float32)
    for first in range(start, stop, _TILE):
        width = min(_TILE, stop - first)
        for i in range(inputs):
            for o in range(width):
                tile[i, o] = slope[i, first + o]
        for i in range(inputs):
            group, step = groups[i], np.float32(-1 / np.float64(coupled[i, i]))
            for o in range(width):
                output = first + o
                scale, zero, value = scales[group, output], zeros[group, output], values[i, output]
                code = _code(_fused(step, tile[i, o], value), scale, zero, tops[output])
                move[o] = (code - zero) * scale - value
                if len(kept) and not np.isnan(kept[i, output]):
                    move[o] = 0
                moves[i, output] = move[o]
            for j in range(i + 1, inputs):
                passed = coupled[i, j]
                for o in range(_TILE):
                    tile[j, o] = _fused(passed, move[o], tile[j, o])
