"""The storage formats of each tensor, with the predicted cost of each format for each language, so that a million plans can be scored."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from laaciq.models import LanguageModel, LinearLayer, TokenMatrix
from laaciq.options import Effort
from laaciq.planning.curvature import Curvature
from laaciq.quantization import quantize_matrix
from laaciq.quantization.hessian import DAMPING, Hessian
from laaciq.quantization.plan import TensorPlan


class StorageFormat(NamedTuple):
    """One way to store a tensor; its size follows."""

    bits: int
    group_size: int = 128
    keep: float = 0.0
    rank: int = 0
    symmetric: bool = False

    def applied(self, plan: TensorPlan) -> TensorPlan:
        return plan.model_copy(update=self._asdict())


_FEW = [StorageFormat(b, g) for b, g in ((2, 64), (3, 128), (3, 64), (4, 128), (4, 64), (4, 32), (6, 128), (8, 128))]
_MORE = [StorageFormat(b, g) for b, g in ((2, 128), (2, 32), (3, 32), (4, 16), (6, 64))]
_KEEPING = [StorageFormat(b, 128, keep) for b in (3, 4) for keep in (0.5, 1.0)]
_CORRECTED = [StorageFormat(b, 128, rank=rank) for b in (3, 4) for rank in (4, 16)]
FORMATS: dict[Effort, list[StorageFormat]] = {
    "fast": [*_FEW, StorageFormat(16)],
    "full": [*_FEW, *_MORE, *_KEEPING, *_CORRECTED, StorageFormat(16)],
}
# Outputs of a tensor, evenly spread, whose errors stand for all.
TRIED_OUTPUTS = 64
# Weights of such outputs that are rounded together on an accelerator: with fewer it waits for operations to start.
_TOGETHER = 2**23


@dataclass(frozen=True)
class TensorGroup:
    """Tensors that are stored alike. `choices` holds, for every format, a plan for each tensor; `sizes` are those of all of them in bits."""

    choices: list[tuple[TensorPlan, ...]]
    sizes: np.ndarray


@dataclass(frozen=True)
class SearchSpace:
    """`losses[u]` is ΔNLL per token, (choices, languages), if only group u is stored in each format. `scale` corrects them by measured
    plans, by language.
    """

    languages: list[str]
    groups: list[TensorGroup]
    losses: list[np.ndarray]
    scale: np.ndarray

    @property
    def sizes(self) -> list[np.ndarray]:
        return [group.sizes for group in self.groups]

    def predict(self, chosen: np.ndarray) -> np.ndarray:
        """Predicted ΔNLL by language (plans, languages) of plans (plans, groups). Losses of tensors add."""
        return self.scale * sum(losses[chosen[..., group]] for group, losses in enumerate(self.losses))

    def tensors(self, chosen: list[int]) -> list[TensorPlan]:
        return [plan for group, choice in zip(self.groups, chosen, strict=True) for plan in group.choices[choice]]

    def rescaled(self, factor: np.ndarray) -> SearchSpace:
        return replace(self, scale=self.scale * factor)


def make_search_space(
    groups: list[TensorGroup],
    model: LanguageModel,
    curvature: Curvature,
    gains: dict[str, float],
    *,
    advance: Callable[[int], None] = lambda groups: None,
) -> SearchSpace:
    """The search space: every tensor is rounded to nearest in every format. `gains` are those of second-order rounding."""
    layers = {layer.name: layer for layer in model.anatomy.all_matrices}
    numbers = 1 if model.device.type == "cpu" else _TOGETHER
    losses = []
    for together in _portions(groups, numbers):
        tried = {plan.name: _tried_outputs(model, layers[plan.name]) for group in together for plan in group.choices[0]}
        plans = [plan for group in together for choice in group.choices for plan in choice]
        by_plan = iter(_predicted_losses(plans, tried, curvature, gains))
        for group in together:
            losses.append(np.stack([sum(next(by_plan) for _ in choice) for choice in group.choices]))
            advance(1)
    return SearchSpace(curvature.languages, groups, losses, np.ones(len(curvature.languages)))


def _portions(groups: list[TensorGroup], numbers: int) -> Iterator[list[TensorGroup]]:
    """The groups in order, a few at a time: as many as have `numbers` weights among the outputs that are tried, or a little more."""
    portion: list[TensorGroup] = []
    for group in groups:
        portion.append(group)
        if sum(TRIED_OUTPUTS * plan.shape[1] for group in portion for plan in group.choices[0]) >= numbers:
            yield portion
            portion = []
    if portion:
        yield portion


def _predicted_losses(
    plans: list[TensorPlan], tried: dict[str, torch.Tensor], curvature: Curvature, gains: dict[str, float]
) -> Iterator[np.ndarray]:
    """The losses of each plan by language. Tensors in the same format are rounded together, as one matrix: their rows do not depend on each
    other.
    """
    together: dict[Hashable, list[TensorPlan]] = {}
    for plan in plans:
        # Kept weights and low-rank corrections are chosen over a whole matrix.
        whole = plan.name if plan.kept or plan.rank or plan.group_size == "tensor" else None
        alike = (plan.shape[1], plan.bits, plan.group_size, plan.symmetric, plan.keep, plan.rank, whole)
        together.setdefault(alike, []).append(plan)
    errors: dict[int, torch.Tensor] = {}
    for alike_plans in together.values():
        if alike_plans[0].quantized:
            rounded = _errors(alike_plans[0], [tried[plan.name] for plan in alike_plans])
            errors |= {id(plan): part for plan, part in zip(alike_plans, rounded, strict=True)}
    for plan in plans:
        if id(plan) not in errors:
            yield np.zeros(len(curvature.languages))
            continue
        gain = 1.0 if plan.rounding == "nearest" else gains.get(plan.name, 1.0)
        yield gain * curvature.losses(plan.name, errors[id(plan)], _step(plan.shape))


def _tried_outputs(model: LanguageModel, layer: LinearLayer | TokenMatrix) -> torch.Tensor:
    """Some outputs of a matrix, on the model's device."""
    # Of an offloaded block, only these are copied.
    return layer.matrix.detach()[:: _step(layer.shape)].to(model.device).float()


def _step(shape: tuple[int, int]) -> int:
    return max(1, shape[0] // TRIED_OUTPUTS)


def _errors(plan: TensorPlan, wanted: list[torch.Tensor]) -> list[torch.Tensor]:
    """Squared errors of matrices, all rounded to nearest in the format of `plan`."""
    stacked = torch.cat(wanted)
    # Weighting inputs needs text; plain squared errors rank the formats the same.
    nearest = plan.model_copy(
        update={"shape": tuple(stacked.shape), "clip": "mse", "rounding": "nearest", "keep_by": "magnitude"}
    )
    errors = (quantize_matrix(stacked, nearest).dequantize(nearest) - stacked).square()
    return list(errors.split([len(matrix) for matrix in wanted]))


def second_order_gain(hessian: Hessian) -> float:
    """Ratio of the errors of second-order rounding and rounding to nearest, for steps of equal size.

    With H = E[xxᵀ], rounding to nearest leaves Σ H_jj·e_j²; second-order rounding Σ d_j·e_j² with the pivots d_j = 1/U_jj² of its Cholesky
    factor (Chee et al. 2023), which are the variances of inputs given those that are rounded after them.
    """
    # Both of the damped H.
    return float(hessian.pivots().sum() / ((1 + DAMPING) * hessian.moments.diagonal().double().sum()).clamp_min(1e-30))
