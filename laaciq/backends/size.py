"""The size of what a back end made, counted as for our methods: in full, and with 16 bits for what was left alone."""

from __future__ import annotations

from laaciq.backends.contract import BackendResult
from laaciq.models import Anatomy
from laaciq.options import FULL_BITS


def bits_per_weight(result: BackendResult, anatomy: Anatomy) -> tuple[float, float]:
    """Of the weights of the blocks, and of the whole model."""
    in_blocks = {linear.name: linear.matrix.numel() for linear in anatomy.linears}
    in_blocks |= {part.name: part.count for part in anatomy.left_in_blocks}
    block_bits = sum(result.bits.get(name, FULL_BITS * count) for name, count in in_blocks.items())
    others = {part.name: part.count for part in anatomy.tensors if part.name not in in_blocks}
    model_bits = block_bits + sum(result.bits.get(name, FULL_BITS * count) for name, count in others.items())
    return block_bits / sum(in_blocks.values()), model_bits / anatomy.parameter_count()


def left_alone_in_blocks(result: BackendResult, anatomy: Anatomy) -> list[str]:
    """The linear layers of the blocks that were not quantized."""
    return [linear.name for linear in anatomy.linears if linear.name in result.left_alone]
