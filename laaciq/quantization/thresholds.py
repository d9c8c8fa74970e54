"""Clipping rules: they set the grid of every group. Errors are true squared errors of the stored grid, not those of a noise model."""

from __future__ import annotations

from collections.abc import Callable

import torch

from laaciq.clipping.formula import FITTED, PUBLISHED, clip_ratio
from laaciq.clipping.quantizer import symmetric_levels
from laaciq.quantization.calibration import TensorCalibration
from laaciq.quantization.grid import Grid, extremes, grid_between, group, scale_type
from laaciq.quantization.plan import TensorPlan

# Thresholds tried between a group's root mean square and its largest weight, then between the best one's neighbours.
SCANNED, REFINED = 14, 4
# Weights searched at a time: on a CPU as many as stay in a core's cache, on an accelerator as many as keep it busy.
CORE_PIECE, OTHER_PIECE = 2**15, 2**25

# Weights of a matrix on a CPU from which on errors are computed in one pass. In smaller ones nothing takes long.
_ONE_PASS, _ONE_PASS_PIECE = 2**20, 2**22

# Weights (outputs, groups, inputs of a group) on a grid → cost by group.
GroupCost = Callable[[torch.Tensor, Grid], torch.Tensor]


def fit_grid(matrix: torch.Tensor, plan: TensorPlan, calibration: TensorCalibration | None = None) -> Grid:
    """The grid of every group of `matrix` (float32), by the plan's rule."""
    groups = group(matrix, plan)
    low, high = extremes(groups, plan)
    dtype = scale_type(torch.maximum(-low, high) / symmetric_levels(plan.bits))
    match plan.clip:
        case "minmax":
            return grid_between(low, high, plan, dtype)
        case "aciq":
            spread, kurtosis = _moments(groups, plan)
            return _clipped(low, high, spread * _ratio(kurtosis, plan.bits, published=False), plan, dtype)
        case "la-aciq":
            spread, _ = _moments(groups, plan)
            kurtosis = torch.tensor(_needed(calibration, plan).effective_kurtosis)
            return _clipped(low, high, spread * _ratio(kurtosis, plan.bits, published=True), plan, dtype)
        case "mse":
            return _search(groups, _filling(plan, matrix.device), plan, dtype)
        case "effective":
            mean = _needed(calibration, plan).mean_squares.mean(0, keepdim=True)
            return _search(groups, group(mean, plan, filler=0.0), plan, dtype)
        case "minimax":
            squares = group(_needed(calibration, plan).mean_squares, plan, filler=0.0)
            # The grid that is best for the weights alone is tried too, so that no language is worse off than under it.
            shared = _search(groups, _filling(plan, matrix.device), plan, dtype)
            return _search(groups, squares, plan, dtype, also=shared)


def _needed(calibration: TensorCalibration | None, plan: TensorPlan) -> TensorCalibration:
    if calibration is None:
        raise ValueError(f"{plan.name}: rule {plan.clip!r} needs calibration")
    return calibration


def _filling(plan: TensorPlan, device: torch.device) -> torch.Tensor:
    """Importance one, and zero where a short group was padded."""
    return group(torch.ones(1, plan.shape[1], device=device), plan, filler=0.0)


def _search(
    groups: torch.Tensor, importance: torch.Tensor, plan: TensorPlan, dtype: torch.dtype, also: Grid | None = None
) -> Grid:
    """The grid with the smallest cost Σ_j m_j (w_j − Q(w_j))²; for several languages, with the smallest worst cost. `also` is tried too.

    `importance` is m, (languages, groups, inputs of a group).
    """
    cost = _cost(importance, plan)
    if plan.group_size == "tensor":
        return _search_piece(groups, cost, plan, dtype, also)
    piece = OTHER_PIECE
    if groups.device.type == "cpu" and len(importance) == 1 and groups.numel() >= _ONE_PASS:
        piece, cost = _ONE_PASS_PIECE, _one_pass_cost(importance[0], plan)
    elif groups.device.type == "cpu":
        piece = CORE_PIECE * torch.get_num_threads()
    rows = max(1, piece // (groups.shape[1] * groups.shape[2]))
    pieces = [
        _search_piece(part, cost, plan, dtype, None if also is None else also.rows(start, start + rows))
        for start, part in zip(range(0, len(groups), rows), groups.split(rows), strict=True)
    ]
    zeros = None if plan.symmetric else torch.cat([p.zeros for p in pieces if p.zeros is not None])
    return Grid(torch.cat([piece.scales for piece in pieces]), zeros)


def _cost(importance: torch.Tensor, plan: TensorPlan) -> GroupCost:
    # (groups, inputs of a group, languages), so that every group's errors meet all languages in one product.
    by_group = importance.permute(1, 2, 0).contiguous()

    def cost(groups: torch.Tensor, grid: Grid) -> torch.Tensor:
        errors = grid.decode(grid.encode(groups, plan.bits), plan.bits).sub_(groups).square_()
        if len(importance) == 1:
            costs = errors.mul_(importance[0]).sum(-1)
            return costs.sum(0, keepdim=True) if plan.group_size == "tensor" else costs
        by_language = torch.bmm(errors.transpose(0, 1), by_group)  # (groups, outputs, languages)
        if plan.group_size == "tensor":
            return by_language.sum(1, keepdim=True).amax(-1)
        return by_language.amax(-1).T

    return cost


def _one_pass_cost(importance: torch.Tensor, plan: TensorPlan) -> GroupCost:
    # numba takes long to load.
    from laaciq.quantization.grid_errors import group_errors

    return lambda groups, grid: group_errors(groups, grid, plan.bits, importance)


def _search_piece(
    groups: torch.Tensor, cost: GroupCost, plan: TensorPlan, dtype: torch.dtype, also: Grid | None
) -> Grid:
    low, high = extremes(groups, plan)
    largest = torch.maximum(-low, high)
    mean_square = groups.square().mean(-1)
    if plan.group_size == "tensor":
        mean_square = mean_square.mean(0, keepdim=True)
    # ln(rms / largest): how far down the scan goes, in equal ratios.
    span = torch.log((mean_square.sqrt() / largest.clamp_min(1e-30)).clamp(1e-6, 1))
    best = torch.full_like(span, torch.inf)
    where = torch.zeros_like(span)
    grid = grid_between(low, high, plan, dtype)

    def attempt(place: torch.Tensor, tried: Grid | None = None) -> None:
        nonlocal best, where, grid
        ratio = torch.exp(span * place)
        tried = tried or grid_between(low * ratio, high * ratio, plan, dtype)
        cost_now = cost(groups, tried)
        better = cost_now < best
        best, where = torch.where(better, cost_now, best), torch.where(better, place, where)
        zeros = None if tried.zeros is None or grid.zeros is None else torch.where(better, tried.zeros, grid.zeros)
        grid = Grid(torch.where(better, tried.scales, grid.scales), zeros)

    for step in range(SCANNED):
        attempt(torch.full_like(span, step / (SCANNED - 1)))
    middle = where
    for step in range(1, REFINED + 1):
        offset = (2 * step / (REFINED + 1) - 1) / (SCANNED - 1)
        attempt((middle + offset).clamp(0, 1))
    if also is not None:
        attempt(middle, also)
    return grid


def _moments(groups: torch.Tensor, plan: TensorPlan) -> tuple[torch.Tensor, torch.Tensor]:
    """σ and κ by group, without padding."""
    real = _filling(plan, groups.device)[0]
    axes = (0, 2) if plan.group_size == "tensor" else (2,)
    count = (real.expand_as(groups)).sum(axes)

    def mean(values: torch.Tensor) -> torch.Tensor:
        return (values * real).sum(axes) / count

    centre = mean(groups)
    deviation = groups - (centre if plan.group_size == "tensor" else centre[..., None])
    variance = mean(deviation.square())
    kurtosis = mean(deviation.pow(4)) / variance.square().clamp_min(1e-38) - 3
    shape = plan.grid_shape if plan.group_size == "tensor" else variance.shape
    return variance.sqrt().reshape(shape), kurtosis.reshape(shape)


def _ratio(kurtosis: torch.Tensor, bits: int, *, published: bool) -> torch.Tensor:
    """f(κ, B): with `published` the published coefficients at 4 bits, the only width they exist for; otherwise our fit."""
    formula = PUBLISHED if published and bits in PUBLISHED else FITTED
    return torch.as_tensor(clip_ratio(kurtosis.cpu().double().numpy(), bits, formula)).float().to(kurtosis.device)


def _clipped(
    low: torch.Tensor, high: torch.Tensor, threshold: torch.Tensor, plan: TensorPlan, dtype: torch.dtype
) -> Grid:
    """The grid of ±α, no wider than the weights themselves."""
    threshold = threshold.to(low.device)
    return grid_between(torch.maximum(low, -threshold), torch.minimum(high, threshold), plan, dtype)
