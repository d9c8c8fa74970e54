"""Second-order rounding (GPTQ, Frantar et al. 2023): round input by input, and let the inputs not yet rounded make up for the error.

With H = E[xxᵀ] the error that a layer's output sees is (ŵ − w)ᵀ H (ŵ − w). When input i is rounded, the best change of the remaining weights
is −(w_i − ŵ_i)/[H⁻¹]_ii · [H⁻¹]_i,: over the remaining inputs; all those inverses come from one Cholesky factor U of H⁻¹. Inputs go in the
order of their second moments, the loudest first, while groups and their grids stay where they are.
"""

from __future__ import annotations

import torch

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.planning import TensorPlan
from laaciq.quantization.grid import Grid
from laaciq.quantization.kept import KeptWeights

# Of the mean second moment, added to all; multiplied until H has an inverse in floating point. On text held back all from 0.01 to 0.3 did
# alike where H was of ten thousand tokens (the reference model, Gemma 3 270M); of two thousand, 0.01 cost half as much again as 0.2.
DAMPENING = 0.1
# Inputs whose errors are passed on within the block at once, and to all others together.
_BLOCK = 128


def round_second_order(
    matrix: torch.Tensor, grid: Grid, plan: TensorPlan, moments: torch.Tensor, kept: KeptWeights | None = None
) -> torch.Tensor:
    """Codes of the plan's shape, uint8. Kept weights are exact, and what earlier inputs left to them is passed on."""
    order = moments.diagonal().argsort(descending=True)
    weights = matrix.detach().float()[:, order].clone()
    factor = inverse_factor(moments[order][:, order])
    scales, zeros = _by_input(grid, plan)
    scales, zeros = scales[:, order], zeros[:, order]
    top = 2 * symmetric_levels(plan.bits) if grid.zeros is None else 2**plan.bits - 1
    exact = None
    if kept is not None:
        exact = kept.put_into(torch.full_like(weights, torch.nan))[:, order]
    codes = torch.zeros(weights.shape, dtype=torch.uint8, device=weights.device)
    for start in range(0, weights.shape[1], _BLOCK):
        stop = min(start + _BLOCK, weights.shape[1])
        errors = torch.zeros(len(weights), stop - start, device=weights.device)
        for i in range(start, stop):
            column, scale, zero = weights[:, i], scales[:, i], zeros[:, i]
            code = (column / scale + zero).round().clamp(0, top)
            # A group of zeros has an infinite step here, and the code that means zero.
            meant = torch.where(scale.isinf(), 0.0, (code - zero) * scale)
            if exact is not None:
                meant = torch.where(exact[:, i].isnan(), meant, exact[:, i])
            codes[:, i] = code.to(torch.uint8)
            error = (column - meant) / factor[i, i]
            weights[:, i + 1 : stop] -= error[:, None] * factor[i, i + 1 : stop]
            errors[:, i - start] = error
        weights[:, stop:] -= errors @ factor[start:stop, stop:]
    return codes[:, order.argsort()].contiguous()


def inverse_factor(moments: torch.Tensor) -> torch.Tensor:
    """Upper U with UᵀU = (H + δI)⁻¹, δ as small as it may be. Any symmetric, positive semi-definite H has one."""
    wide = moments.double()
    identity = torch.eye(len(wide), dtype=wide.dtype, device=wide.device)
    dampening = DAMPENING * wide.diagonal().mean().clamp_min(1e-30)
    while True:
        lower, failed = torch.linalg.cholesky_ex(wide + dampening * identity)
        if not failed:
            upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed:
                return upper.float()
        dampening = 10 * dampening


def _by_input(grid: Grid, plan: TensorPlan) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point of every weight, (outputs, inputs); scale zero as infinity, so that what it divides is zero."""
    scales = grid.scales.float()
    zeros = torch.full_like(scales, symmetric_levels(plan.bits)) if grid.zeros is None else grid.zeros.float()
    scales = scales.where(scales > 0, torch.inf)

    def spread(values: torch.Tensor) -> torch.Tensor:
        wide = values.repeat_interleave(plan.group_inputs, dim=1)[:, : plan.shape[1]]
        return wide.expand(plan.shape)

    return spread(scales), spread(zeros)
