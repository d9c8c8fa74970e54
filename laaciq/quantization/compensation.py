"""Compensated rounding: second-order rounding towards the outputs of the original layer on the original inputs, then refined codes.

Block by block, a layer's inputs x̂ come from quantized blocks; the original's were x. The weights whose outputs on x̂ are nearest to W·x
are W + W·(C − H)·H⁻¹, with H = E[x̂x̂ᵀ] and C = E[xx̂ᵀ]: they compensate for earlier losses. (GPTAQ, Li et al. 2025.) Second-order rounding
passes over the inputs once. Coordinate descent passes over them again, and sets each input's codes to the best ones given all others.
(QuantEase, Behdin et al. 2023.)
"""

from __future__ import annotations

import torch

from laaciq.quantization.hessian import Hessian
from laaciq.quantization.rounding_kernels import BLOCK, RoundingKernels, kernels_for
from laaciq.quantization.stacked import StackedMatrices

# Share of the change that would compensate for everything on the calibration text. On held-out text all of it was worse than none and half was
# best (the reference model at 3 and 4 bits, Gemma 3 270M at 4: docs/frontier.md).
SHARE = 0.5
# Passes over the inputs. One, two and four left a KL of 0.0864, 0.0861 and 0.0856 on held-out text (the reference model, 4 bits).
SWEEPS = 2


def compensated_weights(matrix: torch.Tensor, hessian: Hessian, crossed: torch.Tensor) -> torch.Tensor:
    """The weights that compensate for `SHARE` of what the inputs have lost. `crossed` is C."""
    missing = matrix.detach().float() @ (crossed - hessian.moments)
    # X·H = missing ⇔ H·Xᵀ = missingᵀ, because H is symmetric.
    return matrix.detach().float() + SHARE * hessian.solve(missing.T).T


def refine_codes(
    stack: StackedMatrices, codes: torch.Tensor, hessian: Hessian, kernels: RoundingKernels | None = None
) -> torch.Tensor:
    """Codes, (inputs, outputs), with (ŵ − w)ᵀ H (ŵ − w), H damped, smaller than or equal to that of `codes`, output by output. Kept weights do
    not change. `kernels` are by default those of the device.
    """
    wide, kernels = hessian.damped, kernels or kernels_for(stack.weights.device)
    values = stack.grids.by_input().decode(codes.contiguous())
    if stack.kept is not None:
        values = torch.where(stack.kept.isnan(), values, stack.kept)
    # Half the gradient. Every move updates it: at once within a block of inputs, for all others together.
    slope = wide @ (values - stack.weights)
    for sweep in range(SWEEPS):
        for start in range(0, len(values), BLOCK):
            block = slice(start, start + BLOCK)
            # The last sweep does not come back to the blocks before.
            read = slice(start + BLOCK if sweep == SWEEPS - 1 else 0, None)
            part = stack.at(block)
            moves = kernels.refine_block(values[block], slope[block], wide[block, block], part.grids, part.kept)
            values[block] += moves
            slope[read].addmm_(wide[read, block], moves)
    return stack.grids.by_input().encode(values).to(torch.uint8)
