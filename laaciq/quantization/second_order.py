"""Second-order rounding (GPTQ, Frantar et al. 2023): round input by input, and let the inputs not yet rounded compensate for the error.

With H = E[xxᵀ] the error of a layer's output is (ŵ − w)ᵀ H (ŵ − w). When input i is rounded, the best change of the remaining weights is
−(w_i − ŵ_i)/[H⁻¹]_ii · [H⁻¹]_i,: over the remaining inputs; all those inverses come from one Cholesky factor U of H⁻¹. Inputs are rounded
in descending order of their second moments, while groups and their grids do not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.engine.threads import one_thread
from laaciq.quantization.grid import Grid
from laaciq.quantization.kept import KeptWeights
from laaciq.quantization.plan import TensorPlan

# Share of the mean second moment that is added to the diagonal; increased until H has an inverse in floating point. On held-out text,
# values from 0.01 to 0.3 were equally good if H was computed from ten thousand tokens (the reference model, Gemma 3 270M); with two
# thousand, 0.01 lost half as much again as 0.2.
DAMPING = 0.1
# Inputs per block: errors are passed on at once within a block, and to later blocks together.
BLOCK = 128


def round_second_order(
    matrix: torch.Tensor, grid: Grid, plan: TensorPlan, moments: torch.Tensor, kept: KeptWeights | None = None
) -> torch.Tensor:
    """Codes in the plan's shape, uint8. Kept weights are exact, and the errors of earlier inputs are passed on."""
    order = moments.diagonal().argsort(descending=True)
    weights = matrix.detach().float().T[order].contiguous()
    factor = inverse_factor(moments[order][:, order])
    pivots = factor.diagonal().tolist()
    steps = GridByInput.of(grid, plan).at(order)
    exact = None
    if kept is not None:
        exact = kept.put_into(torch.full_like(matrix, torch.nan, dtype=torch.float32)).T[order]
    rows = steps.rows()
    for start in range(0, len(weights), BLOCK):
        stop = min(start + BLOCK, len(weights))
        errors = torch.empty_like(weights[start:stop])
        # Views are made per block: one by one they would take as long as the arithmetic.
        for i, weight, error in zip(range(start, stop), weights[start:stop].unbind(), errors.unbind(), strict=True):
            _, meant = rows[i].nearest(weight)
            if exact is not None:
                meant = torch.where(exact[i].isnan(), meant, exact[i])
            torch.sub(weight, meant, out=error).div_(pivots[i])
            weights[i + 1 : stop].addr_(factor[i, i + 1 : stop], error, alpha=-1)
        weights[stop:].addmm_(factor[start:stop, stop:].T, errors, alpha=-1)
    # An input's weights do not change after it is rounded.
    codes, _ = steps.nearest(weights)
    return codes[order.argsort()].T.to(torch.uint8).contiguous()


@one_thread()
def inverse_factor(moments: torch.Tensor) -> torch.Tensor:
    """Upper U with UᵀU = (H + δI)⁻¹ for the smallest δ that works. Every symmetric, positive semi-definite H has one."""
    wide = moments.double()
    identity = torch.eye(len(wide), dtype=wide.dtype, device=wide.device)
    damping = DAMPING * wide.diagonal().mean().clamp_min(1e-30)
    while True:
        lower, failed = torch.linalg.cholesky_ex(wide + damping * identity)
        if not failed:
            upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed:
                return upper.float()
        damping = 10 * damping


@dataclass(frozen=True)
class GridByInput:
    """Scale and zero point of every weight, input by input, (inputs, outputs), and the highest code. If a scale is zero, `divisors` is
    infinite, so that quotients are zero.
    """

    scales: torch.Tensor
    divisors: torch.Tensor
    zeros: torch.Tensor
    top: int

    @classmethod
    def of(cls, grid: Grid, plan: TensorPlan) -> GridByInput:
        scales = grid.scales.float()
        zeros = torch.full_like(scales, symmetric_levels(plan.bits)) if grid.zeros is None else grid.zeros.float()
        top = 2 * symmetric_levels(plan.bits) if grid.zeros is None else 2**plan.bits - 1

        def spread(values: torch.Tensor) -> torch.Tensor:
            wide = values.T.repeat_interleave(plan.group_inputs, dim=0)[: plan.shape[1]]
            return wide.expand(plan.shape[::-1])

        return cls(spread(scales), spread(scales.where(scales > 0, torch.inf)), spread(zeros), top)

    def at(self, inputs: torch.Tensor) -> GridByInput:
        """The grid of these inputs, in this order."""
        return GridByInput(self.scales[inputs], self.divisors[inputs], self.zeros[inputs], self.top)

    def rows(self) -> list[GridByInput]:
        """One grid per input."""
        parts = zip(self.scales.unbind(), self.divisors.unbind(), self.zeros.unbind(), strict=True)
        return [GridByInput(*part, self.top) for part in parts]

    def nearest(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The nearest codes, as floats, and the weights that they stand for."""
        codes = torch.addcdiv(self.zeros, weights, self.divisors).round_().clamp_(0, self.top)
        return codes, (codes - self.zeros).mul_(self.scales)
