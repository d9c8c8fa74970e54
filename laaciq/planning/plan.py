"""The `Plan`: for every tensor of the blocks, how it is stored. Made before anything is quantized, written beside the checkpoint."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from laaciq.models import Anatomy
from laaciq.options import Bits, GroupSize

# Of scales, of kept weights, and of everything that is not quantized.
FULL_BITS = 16


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorPlan(_Strict):
    """How one matrix of shape (outputs, inputs) is stored: `bits` a code, a scale for every group of inputs."""

    name: str
    shape: tuple[int, int]
    bits: Bits
    group_size: GroupSize
    symmetric: bool

    @property
    def weights(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def group_inputs(self) -> int:
        """Inputs that share a scale; the last group of a row may be smaller."""
        return self.shape[1] if isinstance(self.group_size, str) else min(self.group_size, self.shape[1])

    @property
    def groups(self) -> int:
        if self.group_size == "tensor":
            return 1
        return self.shape[0] * -(-self.shape[1] // self.group_inputs)

    @property
    def stored_bits(self) -> int:
        """Codes, scales and, for an affine grid, zero points."""
        return self.weights * self.bits + self.groups * (FULL_BITS + (0 if self.symmetric else self.bits))


class Size(_Strict):
    """Counted in full. `block_bits_per_weight` is over the linear layers of the blocks, `model_bits_per_weight` over everything."""

    block_bytes: int
    block_bits_per_weight: float
    model_bytes: int
    model_bits_per_weight: float
    original_model_bytes: int
    compression: float


class Plan(_Strict):
    version: Literal[1] = 1
    method: str
    tensors: list[TensorPlan]
    size: Size

    def __getitem__(self, name: str) -> TensorPlan:
        return next(tensor for tensor in self.tensors if tensor.name == name)


def uniform_plan(anatomy: Anatomy, *, method: str, bits: int, group_size: GroupSize, symmetric: bool) -> Plan:
    """The same bits, groups and grid for every linear layer of the blocks; all else stays in 16 bits."""
    tensors = [
        TensorPlan(name=linear.name, shape=linear.shape, bits=bits, group_size=group_size, symmetric=symmetric)
        for linear in anatomy.linears
    ]
    return Plan(method=method, tensors=tensors, size=count_size(tensors, anatomy))


def count_size(tensors: list[TensorPlan], anatomy: Anatomy) -> Size:
    block_weights = sum(tensor.weights for tensor in tensors)
    block_bits = sum(tensor.stored_bits for tensor in tensors)
    model_weights = anatomy.parameter_count()
    model_bits = block_bits + FULL_BITS * (model_weights - block_weights)
    return Size(
        block_bytes=-(-block_bits // 8),
        block_bits_per_weight=block_bits / block_weights,
        model_bytes=-(-model_bits // 8),
        model_bits_per_weight=model_bits / model_weights,
        original_model_bytes=model_weights * FULL_BITS // 8,
        compression=model_weights * FULL_BITS / model_bits,
    )
