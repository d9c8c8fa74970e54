"""Blocks of GGUF: 32 weights of a row with a float16 scale. From our codes to their bytes, without rounding again where possible.

A code is u steps from zero: u = c − q or c − z. Q4_0, Q5_0 and Q8_0 hold w = d·u for u of 4, 5 and 8 signed bits, so they hold every grid
of ours whose u fit, exactly. Q4_1 holds w = d·c + m, c from 0 to 15: the affine 4-bit grid with m = −z·d, which float16 rounds by up to
15·2⁻¹¹ of a step. Groups larger than a block repeat their scale. Pure functions on arrays; the bytes are those of ggml's `block_q*`
structs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.plan import TensorPlan

BLOCK = 32
# Largest shift of a group by its offset, in steps; rounding to codes shifts each weight by up to half a step.
OFFSET_ERROR = 1 / 64


@dataclass(frozen=True)
class Blocks:
    """A matrix in one type of ggml, bytes by row."""

    type: str
    data: np.ndarray


def to_blocks(quantized: QuantizedMatrix, plan: TensorPlan) -> Blocks | str:
    """Codes with the shared scales in the smallest block type that holds them; or the reason why none does."""
    outputs, inputs = plan.shape
    if inputs % BLOCK or plan.group_inputs % BLOCK:
        return f"groups of {plan.group_inputs} in rows of {inputs} do not divide into blocks of {BLOCK}"
    scales = _by_block(quantized.grid.scales.float().numpy(), plan)
    halves = scales.astype(np.float16)
    if not np.array_equal(halves.astype(np.float32), scales):
        return "its scales are out of the range of float16"
    codes = quantized.codes.numpy().reshape(outputs, -1, BLOCK).astype(np.int16)
    zeros: np.ndarray | int = symmetric_levels(plan.bits)
    if quantized.grid.zeros is not None:
        zeros = _by_block(quantized.grid.zeros.numpy().astype(np.int16), plan)[..., None]
    units = codes - zeros
    low, high = int(units.min()), int(units.max())
    if low >= -8 and high <= 7:
        return Blocks("Q4_0", pack_q4_0(halves, units))
    offsets = -scales * np.broadcast_to(zeros, units.shape)[..., 0]
    with np.errstate(over="ignore"):
        rounded = offsets.astype(np.float16)
    if codes.max() <= 15 and np.all(np.abs(rounded - offsets) <= OFFSET_ERROR * scales):
        return Blocks("Q4_1", pack_q4_1(halves, rounded, codes))
    for name, bound, pack in _SIGNED:
        if low >= -bound and high < bound:
            return Blocks(name, pack(halves, units))
    return f"its codes stand up to {max(-low, high)} steps from zero, blocks hold 127"


def to_16bit_blocks(matrix: np.ndarray) -> Blocks:
    """float32 weights in 16 bits: F16 if that loses nothing, else BF16 if that loses nothing, else rounded to F16 unless they overflow.

    F16 first, because llama.cpp also rounds the inputs of a BF16 product to 8 bits of precision.
    """
    with np.errstate(over="ignore"):
        halves = matrix.astype("<f2")
    # The upper half of a float32, rounded to even.
    words = np.ascontiguousarray(matrix, dtype="<f4").view("<u4")
    brain = ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype("<u2")
    exact_brain = not (words & 0xFFFF).any()
    if np.array_equal(halves.astype(np.float32), matrix) or (np.isfinite(halves).all() and not exact_brain):
        return Blocks("F16", halves)
    return Blocks("BF16", brain.view(np.uint8))


def pack_q4_0(scales: np.ndarray, units: np.ndarray) -> np.ndarray:
    """(rows, blocks) float16 and (rows, blocks, 32) from −8 to 7 → bytes by row."""
    return _rows(_bytes(scales), _nibbles(units + 8))


def pack_q4_1(scales: np.ndarray, offsets: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Like `pack_q4_0`, for codes from 0 to 15 and offsets in the shape of the scales."""
    return _rows(_bytes(scales), _bytes(offsets), _nibbles(codes))


def pack_q5_0(scales: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Like `pack_q4_0`, for units from −16 to 15; the fifth bits are together, first weight lowest."""
    codes = (units + 16).astype(np.uint8)
    return _rows(_bytes(scales), np.packbits(codes >> 4, axis=-1, bitorder="little"), _nibbles(codes & 15))


def pack_q8_0(scales: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Like `pack_q4_0`, for units from −128 to 127."""
    return _rows(_bytes(scales), units.astype(np.int8).view(np.uint8))


_SIGNED: tuple[tuple[str, int, Callable[[np.ndarray, np.ndarray], np.ndarray]], ...] = (
    ("Q5_0", 16, pack_q5_0),
    ("Q8_0", 128, pack_q8_0),
)


def _by_block(grid: np.ndarray, plan: TensorPlan) -> np.ndarray:
    """Scales or zero points by group → by block, (outputs, blocks)."""
    blocks = np.repeat(grid, plan.group_inputs // BLOCK, axis=1)[:, : plan.shape[1] // BLOCK]
    return np.broadcast_to(blocks, (plan.shape[0], plan.shape[1] // BLOCK))


def _nibbles(codes: np.ndarray) -> np.ndarray:
    """Two codes per byte: the first half of a block in the low bits, the second half in the high ones."""
    small = codes.astype(np.uint8)
    return small[..., : BLOCK // 2] | small[..., BLOCK // 2 :] << 4


def _bytes(halves: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(halves.astype("<f2"))[..., None].view(np.uint8)


def _rows(*parts: np.ndarray) -> np.ndarray:
    blocks = np.concatenate(parts, axis=-1)
    return np.ascontiguousarray(blocks.reshape(len(blocks), -1))
