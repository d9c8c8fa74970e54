"""A quantized model with trainable scales, norm gains and biases, and fixed codes: what tuning trains.

Scales are s₀·exp(θ), so that they stay positive and one learning rate suits all; gains and biases v₀ + r·θ, with r the root mean square of
v₀. The forward pass uses both rounded to 16 bits, and gradients pass through the rounding unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from laaciq.models import LanguageModel
from laaciq.models.offloading import BlockTensors, OffloadedBlocks
from laaciq.models.recomputing import recorded_first, recorded_last
from laaciq.quantization.fixed_codes import FixedCodes, PackedCodes, fixed_codes
from laaciq.quantization.kept import rounded_to_16bit, to_16bit
from laaciq.quantization.stored_layers import StoredLayers


class Student(nn.Module):
    """Runs the original's code on other parameters, in float32. Only tensors that are not quantized are copied, and the original does not
    change. Token matrices have scales like all others.

    The weights of a block are dequantized when it runs. With `recompute` they are dequantized again for its gradients, and only the packed
    codes of all blocks stay in memory; otherwise all unpacked codes do.
    """

    def __init__(self, model: LanguageModel, layers: StoredLayers, *, recompute: bool) -> None:
        super().__init__()
        self._recompute = recompute
        self.layers = layers.nearer(on_device=True) if recompute else layers
        linears = {linear.name: linear for linear in model.anatomy.linears}
        self._transposed = {name for name, linear in linears.items() if linear.transposed}
        self.copy = model.without_block_weights()
        self._block_names = model.anatomy.block_names
        quantized = {id(model.module.get_parameter(tensor.name)) for tensor in layers.plans.values()}
        others = {name: p.detach() for name, p in model.module.named_parameters() if id(p) not in quantized}
        self._fixed = {name: to_16bit(p.to(model.device)).float() for name, p in others.items() if p.ndim != 1}
        self._starts = {name: p.to(model.device).float() for name, p in others.items() if p.ndim == 1}
        self._units = {name: float(p.square().mean().sqrt()) for name, p in self._starts.items()}
        self._buffers_of_blocks = [dict(block.named_buffers()) for block in model.blocks]
        self.scale_steps = nn.ParameterList(
            [torch.zeros(tensor.grid_shape, device=model.device) for tensor in layers.plans.values()]
        )
        self.vector_steps = nn.ParameterList([torch.zeros_like(p) for p in self._starts.values()])
        self._steps = dict(zip(layers.plans, self.scale_steps, strict=True))
        self._vectors = dict(zip(self._starts, self.vector_steps, strict=True))
        self._codes: dict[str, FixedCodes] = {}
        self._present: dict[str, tuple[int, torch.Tensor]] = {}
        in_blocks = tuple(f"{name}." for name in self._block_names)
        names = [*self._fixed, *self._starts, *layers.plans]
        self._outside = [name for name in names if not name.startswith(in_blocks)]
        self._inside = [[name for name in names if name.startswith(block)] for block in in_blocks]
        # Blocks of a decoder share what the encoder returns.
        way = recorded_first if model.kind == "encoder-decoder" else recorded_last
        recomputing = way if recompute else None
        blocks = dict(enumerate(self.copy.blocks))
        self.offloaded = OffloadedBlocks(blocks, self, model.device, recomputing=recomputing)

    def forward(self, **arguments: Any) -> Any:
        return functional_call(self.copy.module, self._values(self._outside), kwargs=arguments)

    def fetch(self, index: int) -> BlockTensors:
        """The weights of a block by name within it, with their gradients: `BlockSource`."""
        prefix = f"{self._block_names[index]}."
        values = {name.removeprefix(prefix): value for name, value in self._values(self._inside[index]).items()}
        device = self.offloaded.device
        return values | {name: value.to(device) for name, value in self._buffers_of_blocks[index].items()}

    def get_output_embeddings(self) -> nn.Module | None:
        return self.copy.module.get_output_embeddings()

    def _values(self, names: list[str]) -> dict[str, torch.Tensor]:
        values: dict[str, torch.Tensor] = {}
        for name in names:
            if name in self._fixed:
                values[name] = self._fixed[name]
            elif name in self._starts:
                values[name] = _Rounded.apply(self._vectors[name], self, name)
            else:
                weights = _Dequantized.apply(self._steps[name], self, name)
                values[name] = weights.t() if name in self._transposed else weights
        return values

    def codes(self, name: str) -> FixedCodes:
        if name in self._codes:
            return self._codes[name]
        codes = fixed_codes(self.layers, name)
        # Unpacked codes, and packed ones that are elsewhere, stay only while they are used.
        if not self._recompute or (isinstance(codes, PackedCodes) and self.layers.near(name)):
            self._codes[name] = codes
        return codes

    def scales(self, name: str) -> torch.Tensor:
        """The present scales of a layer, as they would be stored."""
        steps, first = self._steps[name], self.layers.parts[name]["scales"]
        return self._once(name, steps, lambda: _moved_scales(first.to(steps.device), steps))

    def vector(self, name: str) -> torch.Tensor:
        """The present gain or bias, rounded to 16 bits."""
        return self._once(name, self._vectors[name], lambda: rounded_to_16bit(self._moved(name)))

    def unit(self, name: str) -> float:
        return self._units[name]

    def _once(self, name: str, steps: torch.Tensor, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What follows from these steps, computed again only when they have changed: a block reads it three times in a step."""
        version, value = self._present.get(name, (-1, steps))
        if version != steps._version:
            # Computed for inference, it may be used for gradients later.
            with torch.inference_mode(False), torch.no_grad():
                version, value = self._present[name] = steps._version, compute()
        return value

    def _moved(self, name: str) -> torch.Tensor:
        return self._starts[name] + self._units[name] * self._vectors[name]

    @torch.no_grad()
    def stored(self) -> tuple[StoredLayers, Mapping[str, torch.Tensor]]:
        """The layers with their present scales, and gains and biases by name, in 16 bits."""
        scales = {name: self.scales(name) for name in self._steps}
        return self.layers.with_scales(scales), {name: to_16bit(self._moved(name)) for name in self._starts}


def _moved_scales(scales: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """s₀·exp(θ) in the type of s₀, within its range; a scale of zero stays zero."""
    bounds = torch.finfo(scales.dtype)
    moved = (scales.float() * steps.exp()).clamp(bounds.smallest_normal, bounds.max)
    return moved.where(scales > 0, 0.0).to(scales.dtype)


class _Dequantized(torch.autograd.Function):
    """θ → W. The backward pass needs only the codes: storing them as floats would take as much memory again as the weights."""

    @staticmethod
    def forward(ctx: Any, steps: torch.Tensor, student: Student, name: str) -> torch.Tensor:
        ctx.student, ctx.name = student, name
        return student.codes(name).weights(student.scales(name))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """∂/∂θ = s·∂/∂s."""
        student, (gradient,) = ctx.student, gradients
        return student.codes(ctx.name).by_scale(gradient) * student.scales(ctx.name), None, None


class _Rounded(torch.autograd.Function):
    """θ → v₀ + r·θ, rounded; gradients pass through the rounding."""

    @staticmethod
    def forward(ctx: Any, steps: torch.Tensor, student: Student, name: str) -> torch.Tensor:
        ctx.unit = student.unit(name)
        # A view: what an operation returns is its own.
        return student.vector(name).view_as(steps)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = gradients
        return gradient * ctx.unit, None, None
