"""Squared errors of groups on a grid, for the search of a threshold: on a CPU in one pass over the weights, compiled by numba.

As a chain of torch operations every threshold reads and writes the weights eight times.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.engine.compiled import compiled
from laaciq.quantization.grid import Grid

# Partial sums, so that the processor adds as many numbers at once.
_LANES = 16


def group_errors(groups: torch.Tensor, grid: Grid, bits: int, importance: torch.Tensor) -> torch.Tensor:
    """Σ_j m_j (w_j − Q(w_j))² by group, (outputs, groups). `importance` is m, (groups, inputs of a group).

    Every group is added in the same order, whatever the number of threads.
    """
    if grid.zeros is None:
        most, zeros = symmetric_levels(bits), torch.zeros(grid.scales.shape)
        least = -most
    else:
        least, most, zeros = 0, 2**bits - 1, grid.zeros.float()
    sums = torch.empty(grid.scales.shape)
    tensors = (groups, importance, grid.scales.float(), zeros, sums)
    arrays = [tensor.contiguous().numpy() for tensor in tensors]
    limits = np.float32(least), np.float32(most)
    outputs, threads = len(groups), torch.get_num_threads()
    share = -(-outputs // threads)
    # Threads of this call alone: see `rounding_kernels.numba_cpu`.
    with ThreadPoolExecutor(threads) as pool:
        tasks = [
            pool.submit(_add_errors, *arrays, *limits, start, min(start + share, outputs))
            for start in range(0, outputs, share)
        ]
    for task in tasks:
        task.result()
    return sums


@compiled
def _add_errors(weights, importance, scales, zeros, sums, least, most, start, stop):  # type: ignore[no-untyped-def]
    groups, inputs = importance.shape
    whole = inputs - inputs % _LANES
    lanes = np.zeros(_LANES, np.float32)
    for output in range(start, stop):
        for group in range(groups):
            scale, zero = scales[output, group], zeros[output, group]
            divisor = scale if scale > 0 else np.float32(np.inf)
            lanes[:] = 0
            for first in range(0, whole, _LANES):
                for lane in range(_LANES):
                    weight = weights[output, group, first + lane]
                    code = min(max(np.rint(weight / divisor) + zero, least), most)
                    error = (code - zero) * scale - weight
                    lanes[lane] += importance[group, first + lane] * (error * error)
            total = np.float32(0)
            for lane in range(_LANES):
                total += lanes[lane]
            for i in range(whole, inputs):
                weight = weights[output, group, i]
                code = min(max(np.rint(weight / divisor) + zero, least), most)
                error = (code - zero) * scale - weight
                total += importance[group, i] * (error * error)
            sums[output, group] = total
