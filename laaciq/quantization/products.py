"""Products with packed matrices on a GPU, as operators that `torch.compile` does not look into: Triton kernels behind one contract."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch

from laaciq.quantization.plan import TensorPlan

_FEW_TOKENS = 32
# Widths that kernels read: those of which whole codes fill one word of 32 bits, or three. At 5 and 7 bits it takes five and seven words.
KERNEL_BITS = (2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Packing:
    """How a matrix is packed, as kernels are compiled for it. `row_groups` is the number of scales per row, or zero if all rows share one."""

    inputs: int
    bits: int
    group: int
    row_groups: int
    affine: bool

    @classmethod
    def of(cls, plan: TensorPlan) -> Packing:
        row_groups = 0 if plan.group_size == "tensor" else plan.grid_shape[1]
        return cls(plan.shape[1], plan.bits, plan.group_inputs, row_groups, not plan.symmetric)

    @property
    def unit_words(self) -> int:
        """Words of 32 bits in a unit, the shortest run of them that holds whole codes."""
        return 3 if 32 % self.bits else 1

    @property
    def unit_codes(self) -> int:
        return 32 * self.unit_words // self.bits

    @property
    def sums_by_group(self) -> bool:
        """Can a kernel sum over groups? Each must hold a power of two of whole units."""
        units, rest = divmod(self.group, self.unit_codes)
        return self.row_groups > 0 and rest == 0 and units & (units - 1) == 0

    @property
    def numbers(self) -> tuple[int, int, int, int, bool]:
        return self.inputs, self.bits, self.group, self.row_groups, self.affine


class PackedMatrix(NamedTuple):
    """A matrix as a checkpoint stores it, with the scales in use."""

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    packing: Packing
    outputs: int


def most_tokens(dtype: torch.dtype) -> int:
    """Up to as many tokens, a product reads the codes themselves. With more it takes less time to dequantize the weights first, into memory
    that the next layer uses again, and to multiply in 16 bits. In float32 matrix units are of no use to more than one token, and Triton
    compiles a product of several for up to half a minute.
    """
    return 1 if dtype == torch.float32 else _FEW_TOKENS


def packed_product(x: torch.Tensor, matrix: PackedMatrix) -> torch.Tensor:
    """x·Wᵀ of x, (tokens, inputs), with `most_tokens` or fewer."""
    if not torch.compiler.is_compiling():
        # Past the dispatcher, which takes as long as the product.
        return _product_kernels().product(x, matrix)
    codes, scales, zeros, packing, outputs = matrix
    # With its lanes apart x reads faster. Compiled, that costs nothing: the kernel before this one writes x so.
    lanes = x.reshape(len(x), -1, packing.unit_codes).permute(2, 0, 1).contiguous()
    return torch.ops.laaciq.packed_product(lanes, codes, scales, zeros, *packing.numbers, outputs)


def packed_weights(matrix: PackedMatrix, dtype: torch.dtype) -> torch.Tensor:
    """W, (outputs, inputs), dequantized."""
    if not torch.compiler.is_compiling():
        return _weight_kernels().dequantize(matrix, dtype)
    codes, scales, zeros, packing, outputs = matrix
    return torch.ops.laaciq.packed_weights(codes, scales, zeros, *packing.numbers, outputs, dtype)


def packed_group_sums(matrix: PackedMatrix, values: torch.Tensor) -> torch.Tensor:
    """Σ (c − z)·v over each group, (outputs, groups), for values in the matrix's shape, if its packing `sums_by_group`."""
    return _weight_kernels().group_sums(matrix, values)


def why_no_product(plan: TensorPlan) -> str | None:
    """Why no kernel reads a layer that is stored like this, on any GPU; None if one does."""
    if plan.kept:
        return f"Triton kernels keep no weights in 16 bits; {plan.keep:g} % are kept here"
    if plan.rank:
        return f"Triton kernels have no low-rank correction; it has rank {plan.rank} here"
    if plan.bits not in KERNEL_BITS:
        return f"Triton kernels have no codes of {plan.bits} bits; these are dequantized, which is slower"
    needed = Packing.of(plan).unit_codes
    if plan.shape[1] % needed:
        return (
            f"Triton kernels at {plan.bits} bits need inputs in multiples of {needed}; this layer has {plan.shape[1]}"
        )
    return None


@cache
def why_no_triton(device: torch.device) -> str | None:
    """Why Triton kernels do not run on a device; None if they do, which a small product shows."""
    if device.type != "cuda":
        return "Triton kernels need a GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "Triton kernels need a GPU of compute capability 8.0 or more"
    codes, scales = torch.zeros(16, dtype=torch.uint8, device=device), torch.ones(1, 1, dtype=torch.half, device=device)
    matrix = PackedMatrix(codes, scales, None, Packing(32, 4, 32, 1, affine=False), 1)
    try:
        packed_product(scales.new_ones(1, 32), matrix)
    except Exception as error:  # no Triton, no compiler for what it launches with, or a driver that it does not know
        return f"Triton kernels do not run here ({type(error).__name__}: {f'{error}'.strip().partition(chr(10))[0]})"
    return None


def _product_kernels() -> ModuleType:
    """Triton is imported only where a kernel runs."""
    from laaciq.quantization import triton_products

    return triton_products


def _weight_kernels() -> ModuleType:
    from laaciq.quantization import triton_weights

    return triton_weights


_MATRIX = "Tensor codes, Tensor scales, Tensor? zeros, int inputs, int bits, int group, int row_groups, bool affine, int outputs"


def _product(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    inputs: int,
    bits: int,
    group: int,
    row_groups: int,
    affine: bool,
    outputs: int,
) -> torch.Tensor:
    packing = Packing(inputs, bits, group, row_groups, affine)
    return _product_kernels().product(x, PackedMatrix(codes, scales, zeros, packing, outputs))


def _weights(
    codes: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    inputs: int,
    bits: int,
    group: int,
    row_groups: int,
    affine: bool,
    outputs: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    packing = Packing(inputs, bits, group, row_groups, affine)
    return _weight_kernels().dequantize(PackedMatrix(codes, scales, zeros, packing, outputs), dtype)


_product_operator = torch.library.custom_op(
    "laaciq::packed_product", _product, mutates_args=(), schema=f"(Tensor x, {_MATRIX}) -> Tensor"
)
_weights_operator = torch.library.custom_op(
    "laaciq::packed_weights", _weights, mutates_args=(), schema=f"({_MATRIX}, ScalarType dtype) -> Tensor"
)


@_product_operator.register_fake
def _(x: torch.Tensor, *matrix: Any) -> torch.Tensor:
    return x.new_empty(x.shape[-2], matrix[-1])


@_weights_operator.register_fake
def _(codes: torch.Tensor, *matrix: Any) -> torch.Tensor:
    *_, outputs, dtype = matrix
    return codes.new_empty(outputs, matrix[2], dtype=dtype)
