"""The stored form of one matrix: its packed parts, and the module that holds them as buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import nn

from laaciq.quantization.grid import Grid, QuantizedMatrix
from laaciq.quantization.kept import KeptWeights
from laaciq.quantization.low_rank import LowRank
from laaciq.quantization.packing import pack, packed_bytes, unpack, unpack_at
from laaciq.quantization.plan import TensorPlan


def stored_tensors(quantized: QuantizedMatrix, plan: TensorPlan) -> dict[str, torch.Tensor]:
    """The stored tensors of one matrix, by buffer name."""
    grid, kept = quantized.grid, quantized.kept
    parts = {"codes": pack(quantized.codes, plan.bits), "scales": grid.scales}
    if grid.zeros is not None:
        parts["zeros"] = pack(grid.zeros, plan.bits)
    if quantized.tables is not None:
        parts["table_scales"] = quantized.tables
    if kept is not None:
        parts |= {"kept_counts": kept.counts, "kept_columns": kept.columns, "kept_values": kept.values}
    if quantized.low_rank is not None:
        parts |= {"low_rank_left": quantized.low_rank.left, "low_rank_right": quantized.low_rank.right}
    return {name: tensor.cpu().contiguous() for name, tensor in parts.items()}


def read_stored(parts: dict[str, torch.Tensor], plan: TensorPlan) -> QuantizedMatrix:
    """The inverse of `stored_tensors`."""
    zeros = unpack(parts["zeros"], plan.bits, plan.grid_shape) if "zeros" in parts else None
    kept = None
    if "kept_values" in parts:
        kept = KeptWeights(parts["kept_counts"], parts["kept_columns"], parts["kept_values"])
    codes = unpack(parts["codes"], plan.bits, plan.shape)
    return QuantizedMatrix(codes, Grid(parts["scales"], zeros), kept, parts.get("table_scales"), _low_rank(parts))


def read_rows(parts: dict[str, torch.Tensor], plan: TensorPlan, rows: torch.Tensor) -> QuantizedMatrix:
    """Like `read_stored`, for some rows only, which may repeat; nothing else is unpacked."""

    def of(part: str, width: int) -> torch.Tensor:
        return unpack_at(parts[part], plan.bits, rows[:, None] * width + torch.arange(width, device=rows.device))

    scales, zeros, kept, low_rank = parts["scales"], None, None, _low_rank(parts)
    if plan.group_size != "tensor":
        scales = scales[rows]
        zeros = None if plan.symmetric else of("zeros", plan.grid_shape[1])
    elif not plan.symmetric:
        zeros = unpack(parts["zeros"], plan.bits, plan.grid_shape)
    if "kept_values" in parts:
        kept = KeptWeights(parts["kept_counts"], parts["kept_columns"], parts["kept_values"]).rows(rows)
    if low_rank is not None:
        low_rank = LowRank(low_rank.left[rows], low_rank.right)
    return QuantizedMatrix(of("codes", plan.shape[1]), Grid(scales, zeros), kept, None, low_rank)


def _low_rank(parts: dict[str, torch.Tensor]) -> LowRank | None:
    return LowRank(parts["low_rank_left"], parts["low_rank_right"]) if "low_rank_left" in parts else None


def part_shapes(plan: TensorPlan) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and type of every part that a checkpoint must have under this plan; 16-bit floats may also be bfloat16."""
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "codes": ((packed_bytes(plan.weights, plan.bits),), torch.uint8),
        "scales": (plan.grid_shape, torch.float16),
    }
    if not plan.symmetric:
        shapes["zeros"] = ((packed_bytes(plan.groups, plan.bits),), torch.uint8)
    if plan.tables:
        shapes["table_scales"] = ((plan.tables, *plan.grid_shape), torch.float16)
    if plan.kept:
        shapes["kept_counts"] = ((plan.shape[0],), torch.int32)
        shapes["kept_columns"] = ((plan.kept,), torch.uint16)
        shapes["kept_values"] = ((plan.kept,), torch.float16)
    if plan.rank:
        shapes["low_rank_left"] = ((plan.shape[0], plan.rank), torch.float16)
        shapes["low_rank_right"] = ((plan.rank, plan.shape[1]), torch.float16)
    return shapes


class StoredMatrix(nn.Module):
    """Holds the parts of a matrix as buffers. If the matrix is tied to another module's, `owner` is that module."""

    def __init__(
        self, plan: TensorPlan, *, brain_floats: frozenset[str] = frozenset(), owner: StoredMatrix | None = None
    ) -> None:
        """`brain_floats` names the parts that are stored in bfloat16."""
        super().__init__()
        self.plan = plan
        # In a tuple it is not a submodule, so the shared matrix is saved, moved and counted once, with its owner.
        self._owner = () if owner is None else (owner,)
        for name, (shape, dtype) in part_shapes(plan).items() if owner is None else ():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.bfloat16 if name in brain_floats else dtype))

    @property
    def parts(self) -> dict[str, torch.Tensor]:
        owner = self._owner[0] if self._owner else self
        return {name: owner.get_buffer(name) for name in part_shapes(self.plan)}

    @property
    def place(self) -> torch.device:
        return self.parts["codes"].device

    def stored(self) -> QuantizedMatrix:
        return read_stored(self.parts, self.plan)

    def _apply(self, fn: Callable[..., torch.Tensor], recurse: bool = True) -> Self:
        """`model.to(dtype)` changes the type of computation, not of storage: scales keep their 16 bits."""
        parts = {} if self._owner else self.parts
        super()._apply(fn, recurse)
        for name, before in parts.items():
            if (moved := self.get_buffer(name)).dtype != before.dtype:
                setattr(self, name, before.to(moved.device))
        return self
