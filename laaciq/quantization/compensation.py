"""Compensated rounding: second-order rounding towards what the original's layer puts out on the original's inputs, and codes that are
looked at again once all are there.

Block by block, a layer's inputs x̂ are what quantized blocks made of the text, where the original's were x. The weights whose outputs on x̂ are
nearest to W·x are W + W·(C − H)·H⁻¹, with H = E[x̂x̂ᵀ] and C = E[xx̂ᵀ]: they make up for what was lost before. (GPTAQ, Li et al. 2025.)
Second-order rounding goes through the inputs once and never back; descent goes through them again, each input's codes the best ones for all
others as they are now. (QuantEase, Behdin et al. 2023.)
"""

from __future__ import annotations

import torch

from laaciq.engine.threads import one_thread
from laaciq.quantization.grid import Grid, QuantizedMatrix
from laaciq.quantization.kept import KeptWeights
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.second_order import BLOCK, DAMPING, GridByInput

# Share of the change that would compensate for everything on the calibration text. On held-out text all of it was worse than none and half was
# best (the reference model at 3 and 4 bits, Gemma 3 270M at 4: docs/frontier.md).
SHARE = 0.5
# Passes over the inputs. One, two and four left a KL of 0.0864, 0.0861 and 0.0856 on text held back (the reference model, 4 bits).
SWEEPS = 2


def compensating(matrix: torch.Tensor, moments: torch.Tensor, crossed: torch.Tensor) -> torch.Tensor:
    """The weights that make up for a share of what inputs have lost. `moments` is H, `crossed` C."""
    missing = matrix.detach().float() @ (crossed - moments)
    # X·H = missing ⇔ H·Xᵀ = missingᵀ, as H is symmetric.
    with one_thread():
        change = torch.linalg.solve(damped(moments), missing.T).T
    return matrix.detach().float() + SHARE * change


def descend(
    matrix: torch.Tensor,
    codes: torch.Tensor,
    grid: Grid,
    plan: TensorPlan,
    moments: torch.Tensor,
    kept: KeptWeights | None = None,
) -> torch.Tensor:
    """Codes with (ŵ − w)ᵀ H (ŵ − w), H damped, smaller than or equal to that of `codes`, row by row. Kept weights stay."""
    wide, steps = damped(moments), GridByInput.of(grid, plan)
    pivots = wide.diagonal().tolist()
    values = QuantizedMatrix(codes, grid, kept).dequantize(plan).T.contiguous()
    free = None if kept is None else kept.put_into(torch.ones_like(matrix), 0.0).T
    # Half the gradient, which every move keeps up to date: at once within a block of inputs, for all others together.
    slope, rows = wide @ (values - matrix.detach().float().T), steps.rows()
    for _ in range(SWEEPS):
        for start in range(0, len(values), BLOCK):
            stop = min(start + BLOCK, len(values))
            here, moves = slope[start:stop].clone(), torch.empty_like(slope[start:stop])
            parts = (values[start:stop], here, moves, wide[start:stop, start:stop])
            for i, value, gradient, move, coupled in zip(range(start, stop), *(p.unbind() for p in parts), strict=True):
                _, best = rows[i].nearest(value.sub(gradient, alpha=1 / pivots[i]))
                torch.sub(best, value, out=move)
                if free is not None:
                    move.mul_(free[i])
                here.addr_(coupled, move)
            values[start:stop] += moves
            slope.addmm_(wide[:, start:stop], moves)
    nearest, _ = steps.nearest(values)
    return nearest.T.to(torch.uint8).contiguous()


def damped(moments: torch.Tensor) -> torch.Tensor:
    """H + δI, with the damping of second-order rounding."""
    added = DAMPING * moments.diagonal().mean().clamp_min(1e-30)
    return moments + added * torch.eye(len(moments), dtype=moments.dtype, device=moments.device)
