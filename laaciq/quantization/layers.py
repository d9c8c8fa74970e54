"""A linear layer that computes from a checkpoint's codes: on torch's int4 kernels if they are faster, else with dequantized weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.stored import StoredMatrix

# torch's int4 kernels support these group sizes, and tiles of this many outputs and inputs.
_KERNEL_GROUPS = (32, 64, 128, 256)
_OUTPUT_TILE, _INPUT_TILES = 32, 2
# Tokens times weights up to which the kernel beats a bfloat16 product on an H200 (4096 × 4096: 23 µs against 24 at 16 tokens, 80 against
# 20 at 64); on a CPU it always does. Beyond, weights are dequantized for the one product.
CUDA_KERNEL_PRODUCTS = 2**28


def why_dequantized(plan: TensorPlan, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why a layer does not run on torch's int4 kernels, properties of the checkpoint first; None if it does.

    The kernels are fast in bfloat16 only.
    """
    outputs, inputs = plan.shape
    fits = plan.group_inputs in _KERNEL_GROUPS and inputs % plan.group_inputs == 0 and plan.group_size != "tensor"
    tiled = outputs % _OUTPUT_TILE == 0 and inputs % (16 * _INPUT_TILES) == 0
    modern = device.type == "cpu" or (device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0))
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
    return None if modern else "4-bit kernels need a CPU, or a GPU of compute capability 8.0 or more"


class QuantizedLinear(StoredMatrix):
    """y = x·Wᵀ + b with W stored as codes. Replaces an `nn.Linear` or a `Conv1D`. A head may be tied to the embeddings' codes."""

    bias: nn.Parameter | None
    dequantized: torch.Tensor | None
    kernel_codes: torch.Tensor | None

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
        self.table: int | None = None
        self.register_buffer("dequantized", None, persistent=False)
        self.register_buffer("kernel_codes", None, persistent=False)
        # Scales and zeros in the kernel's layout, by table; None is the shared one.
        self.kernel_grids: dict[int | None, torch.Tensor] = {}
        self.prepared_for: tuple[torch.dtype, torch.device] | None = None

    @property
    def on_int4(self) -> bool:
        return self.kernel_codes is not None

    @property
    def weight(self) -> torch.Tensor:
        """Models read the type of a layer's weight, and transformers the shape of a head's. On int4 kernels there is no other content."""
        if self.dequantized is not None:
            return self.dequantized
        dtype = torch.bfloat16 if self.on_int4 else torch.float32
        stand_in = torch.full((), torch.nan, dtype=dtype, device=self.place).expand(self.plan.shape)
        # transformers initialises weights without this mark, and cannot write to an expanded tensor.
        stand_in._is_hf_initialized = True  # type: ignore[attr-defined]
        return stand_in

    def use(self, table: int | None) -> None:
        """Switch to the scales of a table. On int4 kernels this copies no weights; otherwise they are dequantized again."""
        table = table if self.plan.tables else None
        if table != self.table and self.dequantized is not None:
            self.dequantized.copy_(self.stored().dequantize(self.plan, table))
        self.table = table

    # If the first call is within a user's inference mode, the weights must still be mutable outside of it.
    @torch.inference_mode(False)
    @torch.no_grad()
    def prepare(self, dtype: torch.dtype) -> None:
        """Prepare to compute in `dtype` on the present device."""
        device = self.place
        if (dtype, device) == self.prepared_for:
            return
        quantized = self.stored()
        self.dequantized, self.kernel_codes, self.kernel_grids = None, None, {}
        if why_dequantized(self.plan, dtype, device) is None:
            self.kernel_codes = _kernel_codes(quantized.codes)
            for table in (None, *range(self.plan.tables)):
                scales = quantized.grid.scales if table is None or quantized.tables is None else quantized.tables[table]
                self.kernel_grids[table] = _kernel_grid(scales, quantized.grid.zeros)
        else:
            self.dequantized = quantized.dequantize(self.plan, self.table).to(dtype)
        self.prepared_for = (dtype, device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.prepare(x.dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        if self.kernel_codes is None:
            return functional.linear(x, self.weight, bias)
        if x.device.type == "cuda" and x.numel() * self.plan.shape[0] > CUDA_KERNEL_PRODUCTS:
            return functional.linear(x, self.stored().dequantize(self.plan, self.table).to(x.dtype), bias)
        product = _int4_product(x.reshape(-1, x.shape[-1]), self.kernel_codes, self.kernel_grids[self.table], self.plan)
        y = product.reshape(*x.shape[:-1], self.plan.shape[0])
        return y if bias is None else y + bias


def _kernel_codes(codes: torch.Tensor) -> torch.Tensor:
    if codes.device.type == "cpu":
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), _INPUT_TILES)
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
    return torch.ops.aten._convert_weight_to_int4pack(pairs.contiguous(), _INPUT_TILES)


def _kernel_grid(scales: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
    """(groups, outputs, 2): the kernels compute w = (c − 8)·s + z, with z a float."""
    middle = 8 - (symmetric_levels(4) if zeros is None else zeros.float())
    both = torch.stack([scales.float(), scales.float() * middle], dim=-1)
    return both.transpose(0, 1).contiguous().to(torch.bfloat16)


def _int4_product(x: torch.Tensor, codes: torch.Tensor, grid: torch.Tensor, plan: TensorPlan) -> torch.Tensor:
    on_cpu = x.device.type == "cpu"
    kernel = torch.ops.aten._weight_int4pack_mm_for_cpu if on_cpu else torch.ops.aten._weight_int4pack_mm
    return kernel(x.contiguous(), codes, plan.group_inputs, grid)
