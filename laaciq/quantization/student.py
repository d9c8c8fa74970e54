"""A quantized model with trainable scales, norm gains and biases, and fixed codes: what tuning trains.

Scales are s₀·exp(θ), so that they stay positive and one learning rate suits all; gains and biases v₀ + r·θ, with r the root mean square of
v₀. The forward pass uses both rounded to 16 bits, and gradients pass through the rounding unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
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
    """Runs the original's code on other parameters, in float32, or with products in the type of `multiplying_in`. If the original computes in
    bfloat16 on a CPU, the student's products are in bfloat16 too, those of the head included: in float32 the head alone would take longer than
    all blocks. Hidden states stay in float32. Only tensors that are not quantized are copied, and the original does not change. Token
    matrices have scales like all others.

    The weights of a block are dequantized when it runs. With `recompute` they are dequantized again for its gradients, and only the packed
    codes of all blocks stay in memory; otherwise all unpacked codes do.
    """

    def __init__(self, model: LanguageModel, layers: StoredLayers, *, recompute: bool) -> None:
        super().__init__()
        self._recompute = recompute
        self._as_original = model.device.type == "cpu" and model.dtype == torch.bfloat16
        self._products = torch.bfloat16 if self._as_original else torch.float32
        self.layers, self._near = layers, layers.near
        linears = {linear.name: linear for linear in model.anatomy.linears}
        self._transposed = {name for name, linear in linears.items() if linear.transposed}
        self.copy = model.without_block_weights()
        self._block_names = model.anatomy.block_names
        quantized = {id(model.module.get_parameter(tensor.name)) for tensor in layers.plans.values()}
        others = {name: p.detach() for name, p in model.module.named_parameters() if id(p) not in quantized}
        fixed = {name: to_16bit(p.to(model.device)) for name, p in others.items() if p.ndim != 1}
        self._fixed = fixed if self._as_original else {name: p.float() for name, p in fixed.items()}
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
        self._scales = _Scales(
            list(self._steps.values()), [layers.parts[name]["scales"].to(model.device) for name in self._steps]
        )
        in_blocks = tuple(f"{name}." for name in self._block_names)
        names = [*self._fixed, *self._starts, *layers.plans]
        self._outside = [name for name in names if not name.startswith(in_blocks)]
        self._inside = [[name for name in names if name.startswith(block)] for block in in_blocks]
        # Blocks of a decoder share what the encoder returns.
        way = recorded_first if model.kind == "encoder-decoder" else recorded_last
        recomputing = way if recompute else None
        for part in self.copy.module.modules():
            if isinstance(part, nn.Embedding):
                part.register_forward_hook(lambda module, inputs, looked_up: looked_up.float())
        blocks = dict(enumerate(self.copy.blocks))
        for block in blocks.values():
            block.forward = partial(self._run_block, block.forward)
        self.offloaded = OffloadedBlocks(blocks, self, model.device, recomputing=recomputing)

    @contextmanager
    def multiplying_in(self, dtype: torch.dtype) -> Iterator[None]:
        """Context manager: blocks multiply matrices of this type, also when they run again. All else, and logits, stay in float32, unless the
        original computes in bfloat16 on a CPU.
        """
        before, self._products = self._products, dtype
        try:
            yield
        finally:
            self._products = before

    def _run_block(self, forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with self._multiplying(self._products):
            return forward(*arguments, **options)

    def forward(self, **arguments: Any) -> Any:
        dtype = self._products if self._as_original else torch.float32
        with self._multiplying(dtype):
            return functional_call(self.copy.module, self._values(self._outside, dtype), kwargs=arguments)

    def _multiplying(self, dtype: torch.dtype) -> torch.autocast:
        return torch.autocast(self.offloaded.device.type, dtype, enabled=dtype != torch.float32)

    def fetch(self, index: int) -> BlockTensors:
        """The weights of a block by name within it, with their gradients: `BlockSource`."""
        prefix = f"{self._block_names[index]}."
        values = {
            name.removeprefix(prefix): value
            for name, value in self._values(self._inside[index], self._products).items()
        }
        device = self.offloaded.device
        return values | {name: value.to(device) for name, value in self._buffers_of_blocks[index].items()}

    def get_output_embeddings(self) -> nn.Module | None:
        return self.copy.module.get_output_embeddings()

    def _values(self, names: list[str], dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
        values: dict[str, torch.Tensor] = {}
        for name in names:
            if name in self._fixed:
                values[name] = self._fixed[name]
            elif name in self._starts:
                values[name] = _Rounded.apply(self._vectors[name], self, name)
            else:
                weights = _Dequantized.apply(self._steps[name], self, name, dtype)
                values[name] = weights.t() if name in self._transposed else weights
        return values

    def codes(self, name: str) -> FixedCodes:
        if name in self._codes:
            return self._codes[name]
        codes = fixed_codes(self.layers, name)
        # Unpacked codes, and packed ones that are elsewhere, stay only while they are used.
        if not self._recompute or (isinstance(codes, PackedCodes) and self._near):
            self._codes[name] = codes
        return codes

    def scales(self, name: str) -> torch.Tensor:
        """The present scales of a layer, as they would be stored."""
        if self._is_old(name, self._steps[name]):
            # Those of all layers at once: one by one it takes longer to start the operations than to do them.
            for other, steps, scales in zip(self._steps, self.scale_steps, self._scales.moved(), strict=True):
                self._present[other] = steps._version, scales
        return self._present[name][1]

    def vector(self, name: str) -> torch.Tensor:
        """The present gain or bias, rounded to 16 bits."""
        steps = self._vectors[name]
        if self._is_old(name, steps):
            # Computed for inference, it may be used for gradients later.
            with torch.inference_mode(False), torch.no_grad():
                self._present[name] = steps._version, rounded_to_16bit(self._moved(name))
        return self._present[name][1]

    def unit(self, name: str) -> float:
        return self._units[name]

    def _is_old(self, name: str, steps: torch.Tensor) -> bool:
        """Have these steps changed since what follows from them was computed? A block reads it three times in a step."""
        return name not in self._present or self._present[name][0] != steps._version

    def _moved(self, name: str) -> torch.Tensor:
        return self._starts[name] + self._units[name] * self._vectors[name]

    @torch.no_grad()
    def stored(self) -> tuple[StoredLayers, Mapping[str, torch.Tensor]]:
        """The layers with their present scales, and gains and biases by name, in 16 bits."""
        scales = {name: self.scales(name) for name in self._steps}
        return self.layers.with_scales(scales), {name: to_16bit(self._moved(name)) for name in self._starts}


class _Scales:
    """Scales s₀·exp(θ) of all layers, in the type of s₀ and within its range; a scale of zero stays zero."""

    def __init__(self, steps: list[torch.Tensor], first: list[torch.Tensor]) -> None:
        self._steps, self._types = steps, [scales.dtype for scales in first]
        self._first = [scales.float() for scales in first]
        self._least = [torch.finfo(dtype).smallest_normal for dtype in self._types]
        self._most = [torch.finfo(dtype).max for dtype in self._types]
        self._with_zeros = [number for number, scales in enumerate(first) if not bool((scales > 0).all())]

    @torch.inference_mode(False)
    @torch.no_grad()
    def moved(self) -> list[torch.Tensor]:
        moved = list(torch._foreach_mul(self._first, torch._foreach_exp(self._steps)))
        torch._foreach_clamp_min_(moved, self._least)
        torch._foreach_clamp_max_(moved, self._most)
        for number in self._with_zeros:
            moved[number] = moved[number].where(self._first[number] > 0, 0.0)
        return [scales.to(dtype) for scales, dtype in zip(moved, self._types, strict=True)]


class _Dequantized(torch.autograd.Function):
    """θ → W. The backward pass needs only the codes: storing them as floats would take as much memory again as the weights."""

    @staticmethod
    def forward(ctx: Any, steps: torch.Tensor, student: Student, name: str, dtype: torch.dtype) -> torch.Tensor:
        ctx.student, ctx.name = student, name
        return student.codes(name).weights(student.scales(name), dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """∂/∂θ = s·∂/∂s."""
        student, (gradient,) = ctx.student, gradients
        return student.codes(ctx.name).by_scale(gradient) * student.scales(ctx.name), None, None, None


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
