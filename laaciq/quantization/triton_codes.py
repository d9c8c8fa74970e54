"""How Triton kernels read a matrix as a checkpoint stores it: packed codes, scales and zero points.

Codes are read as 32-bit words. A unit is the shortest run of whole words that holds whole codes: one word at 2, 4 and 8 bits, three at 3 and
6 bits. If a unit divides the row, every row begins with one; `unit_codes` says how many codes a unit has, and each of them is a lane.

Kernels of `triton_products` and `triton_weights` build on it. All three are imported only where a kernel runs (`laaciq.quantization.products`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl

from laaciq.quantization.products import PackedMatrix, Packing


@triton.jit
def words_of_unit(codes, inside, words: tl.constexpr):  # type: ignore[no-untyped-def]
    """The words of a unit, three of them; those that a unit does not have repeat the first."""
    first = tl.load(codes, mask=inside, other=0)
    if words == 1:
        return first, first, first
    return first, tl.load(codes + 1, mask=inside, other=0), tl.load(codes + 2, mask=inside, other=0)


@triton.jit
def zero_points(zeros, groups, inside, bits: tl.constexpr, affine: tl.constexpr):  # type: ignore[no-untyped-def]
    """Zero points of groups as floats: packed like codes, but read by byte, since a row of them need not fill words."""
    if not affine:
        return tl.zeros_like(groups).to(tl.float32) + (2 ** (bits - 1) - 1)
    first = groups * bits
    value = tl.load(zeros + first // 8, mask=inside, other=0).to(tl.int32) >> (first % 8)
    if 8 % bits:
        straddles = inside & (first % 8 + bits > 8)
        value |= tl.load(zeros + first // 8 + 1, mask=straddles, other=0).to(tl.int32) << (8 - first % 8)
    return (value & (2**bits - 1)).to(tl.float32)


@triton.jit
def codes_of_units(codes, inside, bits: tl.constexpr, unit_codes: tl.constexpr, unit_words: tl.constexpr):  # type: ignore[no-untyped-def]
    """The codes of units as floats, (units, lanes)."""
    lane = tl.arange(0, unit_codes)[None, :]
    word0, word1, word2 = words_of_unit(codes, inside, unit_words)
    at = lane * bits % 32
    low = word0.to(tl.uint32, bitcast=True)[:, None]
    if unit_words == 1:
        field = low >> at
    else:
        middle, high = word1.to(tl.uint32, bitcast=True)[:, None], word2.to(tl.uint32, bitcast=True)[:, None]
        index = lane * bits // 32
        own = tl.where(index == 0, low, tl.where(index == 1, middle, high))
        following = tl.where(index == 0, middle, high)
        # A shift by all 32 bits is undefined.
        field = (own >> at) | tl.where(at + bits > 32, following << tl.where(at > 0, 32 - at, 0), 0)
    return (field & (2**bits - 1)).to(tl.float32)


def pointers(matrix: PackedMatrix) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes as words, scales, and zero points; without those, a pointer that is never read."""
    return matrix.codes.view(torch.int32), matrix.scales, matrix.codes if matrix.zeros is None else matrix.zeros


def constants(packing: Packing) -> dict[str, int | bool]:
    """What kernels are compiled for."""
    return vars(packing) | {"unit_words": packing.unit_words, "unit_codes": packing.unit_codes}


def device_of(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Triton starts kernels on the current device. It is changed only where it must be: that takes as long as starting a kernel. Triton's
    interpreter reads tensors of the CPU.
    """
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)
