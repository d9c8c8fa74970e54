"""Scales refitted to a language: given the codes, the best scales have a closed form.

For a row w with units u_g (codes less their zero point, zero outside group g) and the second moments H = E[xxᵀ] of the layer's inputs,
(Σ_g s_g u_g − w)ᵀ H (Σ_g s_g u_g − w) is least where A s = b, A_gh = u_gᵀ H u_h, b_g = u_gᵀ H w. All groups of a row are solved together,
because inputs of different groups are correlated.
"""

from __future__ import annotations

import torch

from laaciq.engine.threads import one_thread
from laaciq.quantization.grid import Grid, QuantizedMatrix, group, ungroup
from laaciq.quantization.plan import TensorPlan

# Share of the mean diagonal of A: keeps scales near the shared ones in directions that the text does not determine.
_DAMPING = 1e-2
# Rows solved at a time: limits the memory of their Gram matrices.
_CPU_ROWS, _OTHER_ROWS = 256, 2**14


def refit_scales(
    matrix: torch.Tensor, quantized: QuantizedMatrix, plan: TensorPlan, moments: torch.Tensor
) -> torch.Tensor:
    """Scales in the plan's `grid_shape` and their stored type. Under `moments`, no row is worse than with the shared scales."""
    wanted = matrix.detach().float()
    if quantized.low_rank is not None:
        wanted = wanted - quantized.low_rank.product()
    if quantized.kept is not None:
        # Kept weights are exact; the scales fit the rest.
        wanted = quantized.kept.put_into(wanted, 0.0)
    units = quantized.grid.units(group(quantized.codes, plan), plan.bits)
    if quantized.kept is not None:
        units = group(quantized.kept.put_into(ungroup(units, plan), 0.0), plan, filler=0.0)
    else:
        units = group(ungroup(units, plan), plan, filler=0.0)
    if plan.group_size == "tensor":
        return _refit_one(wanted, units, quantized.grid, plan, moments)
    rows = _CPU_ROWS if units.device.type == "cpu" else _OTHER_ROWS
    parts = zip(wanted.split(rows), units.split(rows), quantized.grid.scales.split(rows), strict=True)
    pieces = [_refit_rows(*part, plan, moments) for part in parts]
    return torch.cat(pieces)


def _refit_rows(
    wanted: torch.Tensor, units: torch.Tensor, shared: torch.Tensor, plan: TensorPlan, moments: torch.Tensor
) -> torch.Tensor:
    rows, groups, size = units.shape
    inputs = plan.shape[1]
    # (u_g restricted to the inputs of group g) H, for all inputs on the other side.
    weighed = torch.zeros(rows, groups, inputs, device=units.device)
    for g in range(groups):
        columns = slice(g * size, min((g + 1) * size, inputs))
        weighed[:, g] = units[:, g, : columns.stop - columns.start] @ moments[columns]
    short = groups * size - inputs
    padded = torch.nn.functional.pad(weighed, (0, short)).reshape(rows, groups, groups, size)
    gram = torch.einsum("rghj,rhj->rgh", padded, units).double()
    gram = (gram + gram.transpose(1, 2)) / 2
    target = torch.einsum("rgj,rj->rg", weighed, wanted).double()
    damp = _DAMPING * gram.diagonal(dim1=1, dim2=2).mean(1)[:, None] + 1e-30
    start = shared.double()
    residual = target - (gram @ start[..., None])[..., 0]
    with one_thread():
        lower = torch.linalg.cholesky(gram + torch.diag_embed(damp.expand_as(start)))
        step = torch.cholesky_solve(residual[..., None], lower)[..., 0]
    refitted = (start + step).to(shared.dtype)

    def loss(scales: torch.Tensor) -> torch.Tensor:
        s = scales.double()
        return torch.einsum("rg,rgh,rh->r", s, gram, s) - 2 * (s * target).sum(1)

    better = (loss(refitted) < loss(shared)) & (refitted > 0).all(1)
    return torch.where(better[:, None], refitted, shared)


def _refit_one(
    wanted: torch.Tensor, units: torch.Tensor, grid: Grid, plan: TensorPlan, moments: torch.Tensor
) -> torch.Tensor:
    """One scale for the whole matrix: s = Σ uᵀHw / Σ uᵀHu."""
    flat = ungroup(units, plan)
    weighed = (flat @ moments).double()
    with one_thread():
        numerator, denominator = (weighed * wanted).sum(), (weighed * flat).sum()
    refitted = (numerator / denominator.clamp_min(1e-30)).to(grid.scales.dtype).reshape(1, 1)

    def loss(scale: torch.Tensor) -> torch.Tensor:
        return scale.double() ** 2 * denominator - 2 * scale.double() * numerator

    return torch.where(loss(refitted) < loss(grid.scales), refitted, grid.scales)
