"""A linear layer that computes from a checkpoint's codes: on kernels that dequantize on the way, else with dequantized weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

import torch
from torch import nn
from torch.nn import functional

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.products import (
    PackedMatrix,
    Packing,
    most_tokens,
    packed_product,
    packed_weights,
    why_no_product,
    why_no_triton,
)
from laaciq.quantization.stored import StoredMatrix

# triton: our kernels, which read codes as they are stored, on a GPU. int4: torch's kernel for CPUs. dequantized: a plain product.
Kernel = Literal["triton", "int4", "dequantized"]

# torch's int4 kernel supports these group sizes, and tiles of this many outputs and inputs.
_INT4_GROUPS = (32, 64, 128, 256)
_INT4_TILE = 32


def why_dequantized(plan: TensorPlan, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why a layer runs on dequantized weights, properties of the checkpoint first; None if a kernel reads its codes."""
    if device.type == "cuda":
        return why_no_product(plan) or why_no_triton(device)
    if reason := _why_no_int4(plan, dtype):
        return reason
    return None if device.type == "cpu" else "kernels need a CPU or a CUDA device"


def _why_no_int4(plan: TensorPlan, dtype: torch.dtype) -> str | None:
    """torch's kernel is fast in bfloat16 only."""
    outputs, inputs = plan.shape
    fits = plan.group_inputs in _INT4_GROUPS and inputs % plan.group_inputs == 0 and plan.group_size != "tensor"
    tiled = outputs % _INT4_TILE == 0 and inputs % _INT4_TILE == 0
    if plan.bits != 4:
        return f"4-bit kernels need 4-bit codes; these have {plan.bits}"
    if plan.kept:
        return f"4-bit kernels keep no weights in 16 bits; {plan.keep:g} % are kept here"
    if plan.rank:
        return f"4-bit kernels have no low-rank correction; it has rank {plan.rank} here"
    if not (fits and tiled):
        return f"4-bit kernels do not fit groups of {plan.group_inputs} in a layer of {outputs}×{inputs} weights"
    if dtype != torch.bfloat16:
        return f"4-bit kernels need bfloat16; this computes in {str(dtype).removeprefix('torch.')}"
    return None


def prepare_layers(module: nn.Module) -> None:
    """Prepare all quantized layers to the last: `torch.compile` finds nothing left to do. Otherwise the first call does this."""
    for layer in module.modules():
        if isinstance(layer, QuantizedLinear):
            layer.prepare(layer.dtype)
            if layer.kernel == "int4":
                layer.source.tile_codes()


class QuantizedLinear(StoredMatrix):
    """y = x·Wᵀ + b with W stored as codes. Replaces an `nn.Linear` or a `Conv1D`. A head may be tied to the embeddings' codes."""

    bias: nn.Parameter | None
    dequantized: torch.Tensor | None
    scales_in_use: torch.Tensor | None

    def __init__(
        self,
        plan: TensorPlan,
        *,
        bias: bool,
        brain_floats: frozenset[str] = frozenset(),
        owner: StoredMatrix | None = None,
    ) -> None:
        super().__init__(plan, brain_floats=brain_floats, owner=owner)
        self.bias = nn.Parameter(torch.zeros(plan.shape[0]), requires_grad=False) if bias else None
        self.packing = Packing.of(plan)
        self.table: int | None = None
        self.register_buffer("dequantized", None, persistent=False)
        # One of `table_scales`. It is a buffer so that a compiled model reads it anew and is not compiled again after a switch.
        self.register_buffer("scales_in_use", None, persistent=False)
        # What the kernel reads as scales, by table; None is the shared one.
        self.kernel_scales: dict[int | None, torch.Tensor] = {}
        self.prepared_for: tuple[torch.dtype, torch.device] | None = None
        self.kernel: Kernel | None = None
        self.dtype = torch.float32

    @property
    def weight(self) -> torch.Tensor:
        """Models read the type of a layer's weight, and transformers the shape of a head's. On kernels there is no other content."""
        if self.dequantized is not None:
            return self.dequantized
        stand_in = torch.full((), torch.nan, dtype=self.dtype, device=self.place).expand(self.plan.shape)
        if not torch.compiler.is_compiling():
            # transformers initialises weights without this mark, and cannot write to an expanded tensor.
            stand_in._is_hf_initialized = True  # type: ignore[attr-defined]
        return stand_in

    def use(self, table: int | None) -> None:
        """Switch to the scales of a table. On kernels this copies nothing; otherwise weights are dequantized again."""
        table = table if self.plan.tables else None
        if table != self.table and self.dequantized is not None:
            self.dequantized.copy_(self.stored().dequantize(self.plan, table))
        self.table = table
        if self.kernel_scales:
            self.scales_in_use = self.kernel_scales[table]

    # If the first call is within a user's inference mode, the weights must still be mutable outside of it.
    @torch.compiler.disable
    @torch.inference_mode(False)
    @torch.no_grad()
    def prepare(self, dtype: torch.dtype) -> None:
        """Prepare to compute in `dtype` on the present device. Codes are tiled only when they are needed: the model may yet be moved."""
        device = self.place
        if (dtype, device) == self.prepared_for:
            return
        self._forget()
        self.dtype = dtype
        if why_dequantized(self.plan, dtype, device) is not None:
            self.kernel = "dequantized"
            self.dequantized = self.stored().dequantize(self.plan, self.table).to(dtype)
        else:
            self.kernel = "triton" if device.type == "cuda" else "int4"
            # A tensor of its own: if it were the buffer itself, a compiled model would take the two for one.
            scales: dict[int | None, torch.Tensor] = {None: self.source.scales.view(self.plan.grid_shape)}
            scales |= {table: self.source.table_scales[table] for table in range(self.plan.tables)}
            if self.kernel == "int4":
                zeros = self.source.unpacked_zeros()
                scales = {table: _int4_grid(stored, zeros) for table, stored in scales.items()}
            self.kernel_scales, self.scales_in_use = scales, scales[self.table]
        self.prepared_for = (dtype, device)

    def _forget(self) -> None:
        self.dequantized, self.scales_in_use, self.kernel_scales = None, None, {}
        self.prepared_for = self.kernel = None

    def _apply(self, fn: Callable[..., torch.Tensor], recurse: bool = True) -> Self:
        """What was prepared is not moved but prepared again."""
        before = self.prepared_for
        self._forget()
        super()._apply(fn, recurse)
        if before is not None:
            self.dtype = fn(torch.empty(0, dtype=before[0], device=before[1])).dtype
            if self.place.type != "meta":
                self.prepare(self.dtype)
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        self._forget()
        super()._load_from_state_dict(*args)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.prepared_for != (x.dtype, self.place):
            self.prepare(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if self.kernel == "dequantized":
            return functional.linear(x, self.weight, bias)
        # Gradients flow through dequantized weights.
        if self.kernel == "triton" and (x.numel() > most_tokens(x.dtype) * x.shape[-1] or x.requires_grad):
            return functional.linear(x, packed_weights(self._packed, x.dtype), bias)
        flat = x.reshape(-1, x.shape[-1])
        product = packed_product(flat, self._packed) if self.kernel == "triton" else self._int4_product(flat)
        y = product.reshape(*x.shape[:-1], self.plan.shape[0])
        return y if bias is None else y + bias

    @property
    def _packed(self) -> PackedMatrix:
        zeros = None if self.plan.symmetric else self.source.zeros
        return PackedMatrix(
            self.source.packed_codes(), self.get_buffer("scales_in_use"), zeros, self.packing, self.plan.shape[0]
        )

    def _int4_product(self, x: torch.Tensor) -> torch.Tensor:
        if self.source.tiles is None:
            self.source.tile_codes()
        kernel = torch.ops.aten._weight_int4pack_mm_for_cpu
        return kernel(x.contiguous(), self.source.tiles, self.plan.group_inputs, self.scales_in_use)


def _int4_grid(scales: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
    """(groups, outputs, 2): torch's kernel computes w = (c − 8)·s + z, with z a float."""
    middle = 8 - (symmetric_levels(4) if zeros is None else zeros.float())
    both = torch.stack([scales.float(), scales.float() * middle], dim=-1)
    return both.transpose(0, 1).contiguous().to(torch.bfloat16)
