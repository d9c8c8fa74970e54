"""The storage formats of each tensor, with the predicted cost of each format for each language, so that a million plans can be scored."""

from __future__ import annotations

from collections.abc import Callable
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
    losses = []
    for group in groups:
        rows = [np.zeros(len(curvature.languages))] * len(group.choices)
        for number, tensor in enumerate(group.choices[0]):
            wanted = _tried_outputs(model, layers[tensor.name])
            for choice, plans in enumerate(group.choices):
                gain = gains.get(tensor.name, 1.0)
                rows[choice] = rows[choice] + _losses(plans[number], wanted, curvature, gain)
        losses.append(np.stack(rows))
        advance(1)
    return SearchSpace(curvature.languages, groups, losses, np.ones(len(curvature.languages)))


def _tried_outputs(model: LanguageModel, layer: LinearLayer | TokenMatrix) -> torch.Tensor:
    """Some outputs of a matrix, on the model's device."""
    step = max(1, layer.shape[0] // TRIED_OUTPUTS)
    # Of an offloaded block, only these are copied.
    return layer.matrix.detach()[::step].to(model.device).float()


def _losses(plan: TensorPlan, wanted: torch.Tensor, curvature: Curvature, gain: float) -> np.ndarray:
    if not plan.quantized:
        return np.zeros(len(curvature.languages))
    # Weighting inputs needs text; plain squared errors rank the formats the same.
    nearest = plan.model_copy(
        update={"shape": tuple(wanted.shape), "clip": "mse", "rounding": "nearest", "keep_by": "magnitude"}
    )
    errors = (quantize_matrix(wanted, nearest).dequantize(nearest) - wanted).square()
    step = max(1, plan.shape[0] // TRIED_OUTPUTS)
    return (1.0 if plan.rounding == "nearest" else gain) * curvature.losses(plan.name, errors, step)


def second_order_gain(hessian: Hessian) -> float:
    """Ratio of the errors of second-order rounding and rounding to nearest, for steps of equal size.

    With H = E[xxᵀ], rounding to nearest leaves Σ H_jj·e_j²; second-order rounding Σ d_j·e_j² with the pivots d_j = 1/U_jj² of its Cholesky
    factor (Chee et al. 2023), which are the variances of inputs given those that are rounded after them.
    """
    pivots = hessian.inverse_factor.diagonal().double().pow(-2)
    # Both of the damped H.
    return float(pivots.sum() / ((1 + DAMPING) * hessian.moments.diagonal().double().sum()).clamp_min(1e-30))
