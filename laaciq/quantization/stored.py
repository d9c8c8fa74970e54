"""The stored form of one matrix: its packed parts, and the module that holds them as buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import nn

from laaciq.quantization.grid import Grid, QuantizedMatrix
from laaciq.quantization.int4_tiles import row_places, tile, untile, untile_rows
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


def read_rows(
    parts: dict[str, torch.Tensor], plan: TensorPlan, rows: torch.Tensor, codes: torch.Tensor | None = None
) -> QuantizedMatrix:
    """Like `read_stored`, for some rows only, which may repeat; nothing else is unpacked. `codes` are those of the rows if the parts have
    none.
    """

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
    if codes is None:
        codes = of("codes", plan.shape[1])
    return QuantizedMatrix(codes, Grid(scales, zeros), kept, None, low_rank)


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


# Two threads may call a model for the first time.
_TILING = threading.Lock()


class StoredMatrix(nn.Module):
    """Holds the parts of a matrix as buffers. If the matrix is tied to another module's, `owner` is that module.

    Codes are held once: packed as in a checkpoint, or, once a layer runs on torch's int4 kernel for CPUs, in the kernel's layout as `tiles`.
    They are packed again to be saved or moved.
    """

    codes: torch.Tensor | None
    scales: torch.Tensor
    zeros: torch.Tensor
    table_scales: torch.Tensor
    tiles: torch.Tensor | None
    tile_places: torch.Tensor | None
    # Are single rows looked up, as of embeddings?
    read_by_row = False

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
        if owner is None:
            self.register_buffer("tiles", None, persistent=False)
            self.register_buffer("tile_places", None, persistent=False)

    @property
    def source(self) -> StoredMatrix:
        """The module that holds the parts."""
        return self._owner[0] if self._owner else self

    @property
    def parts(self) -> dict[str, torch.Tensor]:
        return {"codes": self.source.packed_codes()} | self._other_parts

    @property
    def _other_parts(self) -> dict[str, torch.Tensor]:
        source = self.source
        return {name: source.get_buffer(name) for name in part_shapes(self.plan) if name != "codes"}

    @property
    def place(self) -> torch.device:
        return self.source.scales.device

    def stored(self) -> QuantizedMatrix:
        return read_stored(self.parts, self.plan)

    def stored_rows(self, rows: torch.Tensor) -> QuantizedMatrix:
        """Like `stored`, for some rows only, which may repeat; nothing else is unpacked."""
        # In this order, because another thread may be tiling.
        if (packed := self.source.codes) is not None:
            return read_rows({"codes": packed} | self._other_parts, self.plan, rows)
        tiles, places = self.source.get_buffer("tiles"), self.source.get_buffer("tile_places")
        return read_rows(self._other_parts, self.plan, rows, untile_rows(tiles, places, rows))

    def unpacked_zeros(self) -> torch.Tensor | None:
        return None if self.plan.symmetric else unpack(self.zeros, self.plan.bits, self.plan.grid_shape)

    def packed_codes(self) -> torch.Tensor:
        if (packed := self.codes) is not None:
            return packed
        return pack(untile(self.get_buffer("tiles")), self.plan.bits)

    @torch.compiler.disable
    @torch.inference_mode(False)
    def tile_codes(self) -> None:
        """Hold the codes in the layout of torch's int4 kernel for CPUs."""
        with _TILING:
            if self.codes is not None:
                self.tile_places = row_places(self.plan.shape) if self.read_by_row else None
                self.tiles = tile(unpack(self.codes, self.plan.bits, self.plan.shape))
                self.codes = None

    def pack_codes(self) -> None:
        """Hold the codes as a checkpoint does."""
        if self.tiles is not None:
            self.codes, self.tiles, self.tile_places = self.packed_codes(), None, None

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not self._owner:
            destination[f"{prefix}codes"] = self.packed_codes()

    def _load_from_state_dict(self, *args: Any) -> None:
        if not self._owner:
            self.pack_codes()
        super()._load_from_state_dict(*args)

    def _apply(self, fn: Callable[..., torch.Tensor], recurse: bool = True) -> Self:
        """`model.to(dtype)` changes the type of computation, not of storage: scales keep their 16 bits."""
        if not self._owner:
            self.pack_codes()
        parts = {} if self._owner else self.parts
        super()._apply(fn, recurse)
        for name, before in parts.items():
            if (moved := self.get_buffer(name)).dtype != before.dtype:
                setattr(self, name, before.to(moved.device))
        return self
