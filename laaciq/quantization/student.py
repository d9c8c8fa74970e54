"""A quantized model with trainable scales, norm gains and biases, and fixed codes: what tuning trains.

Scales are s₀·exp(θ), so that they stay positive and one learning rate suits all; gains and biases v₀ + r·θ, with r the root mean square of
v₀. The forward pass uses both rounded to 16 bits, and gradients pass through the rounding unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from laaciq.models import LanguageModel
from laaciq.quantization.grid import Grid, Layers, QuantizedMatrix, group
from laaciq.quantization.kept import to_16bit
from laaciq.quantization.plan import TensorPlan


class Student(nn.Module):
    """Runs the original's code on other parameters, in float32. Only tensors that are not quantized are copied, and the original does not
    change. Token matrices have scales like all others.
    """

    def __init__(self, model: LanguageModel, layers: Layers) -> None:
        super().__init__()
        self.original = model.module
        self.layers = layers
        transposed = {linear.name for linear in model.anatomy.linears if linear.transposed}
        self.turned = [tensor.name in transposed for tensor, _ in layers]
        quantized = {id(model.module.get_parameter(tensor.name)) for tensor, _ in layers}
        others = {name: p.detach() for name, p in model.module.named_parameters() if id(p) not in quantized}
        vectors = {name: p for name, p in others.items() if p.ndim == 1}
        self.fixed = {name: to_16bit(p).float() for name, p in others.items() if name not in vectors}
        self.starts = {name: p.float() for name, p in vectors.items()}
        self.units = {name: float(p.square().mean().sqrt()) for name, p in self.starts.items()}
        self.scale_steps = nn.ParameterList([torch.zeros_like(q.grid.scales, dtype=torch.float32) for _, q in layers])
        self.vector_steps = nn.ParameterList([torch.zeros_like(p) for p in self.starts.values()])

    def forward(self, **arguments: Any) -> Any:
        values: dict[str, torch.Tensor] = dict(self.fixed)
        for (tensor, matrix), steps, turned in zip(self.layers, self.scale_steps, self.turned, strict=True):
            weights = _Dequantized.apply(steps, matrix, tensor)
            values[tensor.name] = weights.t() if turned else weights
        for name, moved in self._moved().items():
            values[name] = moved + (to_16bit(moved.detach()).float() - moved.detach())
        return functional_call(self.original, values, kwargs=arguments)

    def get_output_embeddings(self) -> nn.Module | None:
        return self.original.get_output_embeddings()

    def _moved(self) -> dict[str, torch.Tensor]:
        pairs = zip(self.starts.items(), self.vector_steps, strict=True)
        return {name: start + self.units[name] * steps for (name, start), steps in pairs}

    @torch.no_grad()
    def stored(self) -> tuple[Layers, Mapping[str, torch.Tensor]]:
        """The layers with their present scales, and gains and biases by name, in 16 bits."""
        layers = [
            (tensor, replace(matrix, grid=_moved_grid(matrix.grid, steps)))
            for (tensor, matrix), steps in zip(self.layers, self.scale_steps, strict=True)
        ]
        return layers, {name: to_16bit(moved) for name, moved in self._moved().items()}


def _moved_grid(grid: Grid, steps: torch.Tensor) -> Grid:
    """s₀·exp(θ) in the type of s₀, within its range; a scale of zero stays zero."""
    bounds = torch.finfo(grid.scales.dtype)
    moved = (grid.scales.float() * steps.exp()).clamp(bounds.smallest_normal, bounds.max)
    return Grid(moved.where(grid.scales > 0, 0.0).to(grid.scales.dtype), grid.zeros)


class _Dequantized(torch.autograd.Function):
    """θ → W. The backward pass needs only the codes: storing them as floats would take as much memory again as the weights."""

    @staticmethod
    def forward(ctx: Any, steps: torch.Tensor, matrix: QuantizedMatrix, plan: TensorPlan) -> torch.Tensor:
        ctx.plan, ctx.matrix = plan, replace(matrix, grid=_moved_grid(matrix.grid, steps))
        return ctx.matrix.dequantize(plan)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """∂/∂θ = s·Σ u·∂/∂w over the group's units u; kept weights do not depend on scales."""
        (gradient,), plan, matrix = gradients, ctx.plan, ctx.matrix
        if matrix.kept is not None:
            gradient = matrix.kept.put_into(gradient, 0.0)
        units = matrix.grid.units(group(matrix.codes, plan), plan.bits)
        by_group = (units * group(gradient, plan, filler=0.0)).sum(-1)
        if plan.group_size == "tensor":
            by_group = by_group.sum().reshape(1, 1)
        return matrix.grid.scales.float() * by_group, None, None
