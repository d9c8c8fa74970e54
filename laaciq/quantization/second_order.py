"""Second-order rounding (GPTQ, Frantar et al. 2023): round input by input, and let the inputs not yet rounded compensate for the error.

With H = E[xxᵀ] the error of a layer's output is (ŵ − w)ᵀ H (ŵ − w). When input i is rounded, the best change of the remaining weights is
−(w_i − ŵ_i)/[H⁻¹]_ii · [H⁻¹]_i,: over the remaining inputs; all those inverses come from one Cholesky factor U of H⁻¹. Inputs are rounded
in descending order of their second moments, while groups and their grids do not change.
"""

from __future__ import annotations

import torch

from laaciq.quantization.hessian import Hessian
from laaciq.quantization.rounding_kernels import BLOCK, RoundingKernels, kernels_for
from laaciq.quantization.stacked import StackedMatrices


def round_second_order(
    stack: StackedMatrices, hessian: Hessian, kernels: RoundingKernels | None = None
) -> torch.Tensor:
    """Codes, (inputs, outputs), uint8. Kept weights are exact, and the errors of earlier inputs are passed on. `kernels` are by default those
    of the device.
    """
    order, factor = hessian.order, hessian.inverse_factor
    ordered = stack.at(order)
    weights, kernels = ordered.weights, kernels or kernels_for(factor.device)
    codes = torch.empty_like(weights, dtype=torch.uint8)
    for start in range(0, len(weights), BLOCK):
        block, later = slice(start, start + BLOCK), slice(start + BLOCK, None)
        part = ordered.at(block)
        codes[block], errors = kernels.round_block(part.weights, factor[block, block], part.grids, part.kept)
        weights[later].addmm_(factor[block, later].T, errors, alpha=-1)
    return codes[order.argsort()]
