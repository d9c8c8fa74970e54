"""The sequential part of rounding: the inputs of one block, one after another, for all outputs.

Every step reads the results of the last, so as a loop over tensors it starts a handful of operations per input and waits for each. Outputs
are independent: a kernel takes the whole block for a few outputs at a time. `plain` is the specification, in torch, and runs anywhere;
`numba_cpu` and `triton_cuda` give the same codes, except where a weight lies half-way between two of them up to rounding errors.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Protocol

import torch

from laaciq.quantization.rounding_kernels import plain
from laaciq.quantization.rounding_kernels.output_grids import OutputGrids

# Inputs per block: errors are passed on at once within a block, and to later blocks together, by a matrix product.
BLOCK = 128


class RoundingKernels(Protocol):
    """Matrices are (inputs of the block, outputs), float32. `kept` holds the kept weights, NaN elsewhere, or is None if no weight is kept.
    Nothing that is passed in changes.
    """

    def round_block(
        self, weights: torch.Tensor, factor: torch.Tensor, grids: OutputGrids, kept: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes, uint8, and the errors e = (w − ŵ)/U_ii that later blocks compensate for. `factor` is the block of U."""

    def refine_block(
        self,
        values: torch.Tensor,
        slope: torch.Tensor,
        coupled: torch.Tensor,
        grids: OutputGrids,
        kept: torch.Tensor | None,
    ) -> torch.Tensor:
        """The move of every weight to its best value given all others, and given the moves before it. `slope` is half the gradient, `coupled`
        the block of H.
        """


def kernels_for(device: torch.device) -> RoundingKernels:
    """The fastest kernels for tensors on this device."""
    if device.type == "cpu":
        from laaciq.quantization.rounding_kernels import numba_cpu

        return numba_cpu
    if device.type == "cuda":
        return _cuda_kernels()
    return plain


@cache
def _cuda_kernels() -> RoundingKernels:
    try:
        from laaciq.quantization.rounding_kernels import triton_cuda
    except ImportError as error:
        warnings.warn(
            f"rounding on the GPU is slow without Triton, which comes with torch for CUDA: {error}", stacklevel=2
        )
        return plain
    return triton_cuda
