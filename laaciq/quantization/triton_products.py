"""Triton kernels that multiply with a packed matrix, which is dequantized on the way.

w = s·(c − z), so Σ w·x = s·(Σ c·x − z·Σ x) over the inputs that share a scale. A code needs no conversion to a float and mostly no shift: its
bits, where they are in the word and with all others cleared, are the subnormal float32 c·2^(place − 149), exactly. GPUs multiply those at full
speed. The input is multiplied by a power of two beforehand, so that the product is a normal number.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from laaciq.quantization.products import PackedMatrix
from laaciq.quantization.triton_codes import constants, device_of, pointers, words_of_unit, zero_points

# The power of two that inputs are multiplied by, and what then remains: 2⁻¹⁴⁹·2⁸⁴ = 2⁻⁶⁵. Inputs up to 2⁴⁴ stay finite.
_RAISED = tl.constexpr(2.0**84)
_REMAINING = tl.constexpr(2.0**65)

# Tile of the product with one token, rows and units per step, for units of one word and of three. A thread then loads four words of each row,
# or one unit of twice as many rows.
TILES = {1: (4, 512), 3: (8, 128)}
# Tile of the product with several tokens, and the number of programs below which the inputs are divided among more of them.
_BATCH_ROWS, _BATCH_UNITS, _BATCH_PROGRAMS = 64, 32, 512


@triton.jit
def _raised(value, lane: tl.constexpr, bits: tl.constexpr):  # type: ignore[no-untyped-def]
    """What the code of a lane is multiplied by in place of the value: the sum is 2⁻⁶⁵ of the true one."""
    at: tl.constexpr = lane * bits % 32
    place: tl.constexpr = 0 if at + bits > 32 else at if at + bits <= 23 else at - 16
    return value * (_RAISED * 0.5**place)


@triton.jit
def _lane(word0, word1, word2, lane: tl.constexpr, bits: tl.constexpr):  # type: ignore[no-untyped-def]
    """The code of a lane as a subnormal float: the bits of a mantissa."""
    index: tl.constexpr = lane * bits // 32
    at: tl.constexpr = lane * bits % 32
    ones: tl.constexpr = 2**bits - 1
    if index == 0:
        low, high = word0, word1
    elif index == 1:
        low, high = word1, word2
    else:
        low, high = word2, word2
    if at + bits > 32:
        field = ((low >> at) & (2 ** (32 - at) - 1)) | ((high << (32 - at)) & ones)
    elif at + bits <= 23:
        field = low & (ones << at)
    else:
        field = (low >> 16) & (ones << (at - 16))
    return field.to(tl.float32, bitcast=True)


@triton.jit
def _vector_product(  # type: ignore[no-untyped-def]
    x,
    codes,
    scales,
    zeros,
    y,
    outputs,
    lane_stride,
    unit_stride,
    inputs: tl.constexpr,
    bits: tl.constexpr,
    unit_codes: tl.constexpr,
    unit_words: tl.constexpr,
    group: tl.constexpr,
    row_groups: tl.constexpr,
    affine: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """One token. A program computes `ROWS` outputs; its threads share the inputs, and add up at the end."""
    units: tl.constexpr = inputs // unit_codes
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    present = (rows < outputs)[None, :]
    total = tl.zeros([UNITS, ROWS], tl.float32)
    for start in range(0, units, UNITS):
        unit = start + tl.arange(0, UNITS)
        inside = (unit < units)[:, None] & present
        words = codes + rows[None, :] * (units * unit_words) + unit[:, None] * unit_words
        word0, word1, word2 = words_of_unit(words, inside, unit_words)
        if group % unit_codes == 0:
            sums, input_sum = tl.zeros([UNITS, ROWS], tl.float32), tl.zeros([UNITS], tl.float32)
            for lane in tl.static_range(unit_codes):
                value = tl.load(x + lane * lane_stride + unit * unit_stride, mask=unit < units, other=0.0).to(
                    tl.float32
                )
                input_sum += value
                sums += _lane(word0, word1, word2, lane, bits) * _raised(value, lane, bits)[:, None]
            groups = rows[None, :] * row_groups + (unit * unit_codes // group)[:, None]
            zero = zero_points(zeros, groups, inside, bits, affine)
            scale = tl.load(scales + groups, mask=inside, other=0.0).to(tl.float32)
            total += (sums * _REMAINING - zero * input_sum[:, None]) * scale
        else:
            for lane in tl.static_range(unit_codes):
                value = tl.load(x + lane * lane_stride + unit * unit_stride, mask=unit < units, other=0.0).to(
                    tl.float32
                )
                code = _raised(_lane(word0, word1, word2, lane, bits), lane, bits) * _REMAINING
                groups = rows[None, :] * row_groups + ((unit * unit_codes + lane) // group)[:, None]
                zero = zero_points(zeros, groups, inside, bits, affine)
                scale = tl.load(scales + groups, mask=inside, other=0.0).to(tl.float32)
                total += (code - zero) * scale * value[:, None]
    tl.store(y + rows, tl.sum(total, axis=0).to(y.dtype.element_ty), mask=rows < outputs)


@triton.jit
def _batch_product(  # type: ignore[no-untyped-def]
    x,
    codes,
    scales,
    zeros,
    y,
    tokens,
    outputs,
    lane_stride,
    token_stride,
    unit_stride,
    part_units: tl.constexpr,
    inputs: tl.constexpr,
    bits: tl.constexpr,
    unit_codes: tl.constexpr,
    unit_words: tl.constexpr,
    group: tl.constexpr,
    row_groups: tl.constexpr,
    affine: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Up to `TOKENS` tokens. A program computes `ROWS` outputs over one part of the inputs; y has shape (parts, tokens, outputs)."""
    units: tl.constexpr = inputs // unit_codes
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = tl.arange(0, TOKENS)
    first = tl.program_id(1) * part_units
    last = tl.minimum(first + part_units, units)
    total = tl.zeros([TOKENS, ROWS], tl.float32)
    for start in range(0, part_units, UNITS):
        unit = first + start + tl.arange(0, UNITS)
        inside = (unit < last)[:, None] & (rows < outputs)[None, :]
        wanted = (token < tokens)[:, None] & (unit < last)[None, :]
        words = codes + rows[None, :] * (units * unit_words) + unit[:, None] * unit_words
        word0, word1, word2 = words_of_unit(words, inside, unit_words)
        groups = rows[None, :] * row_groups + (unit * unit_codes // group)[:, None]
        zero = zero_points(zeros, groups, inside, bits, affine)
        scale = tl.load(scales + groups, mask=inside, other=0.0).to(tl.float32)
        for lane in tl.static_range(unit_codes):
            places = token[:, None] * token_stride + lane * lane_stride + unit[None, :] * unit_stride
            value = tl.load(x + places, mask=wanted, other=0.0)
            if group % unit_codes:
                groups = rows[None, :] * row_groups + ((unit * unit_codes + lane) // group)[:, None]
                zero = zero_points(zeros, groups, inside, bits, affine)
                scale = tl.load(scales + groups, mask=inside, other=0.0).to(tl.float32)
            code = _raised(_lane(word0, word1, word2, lane, bits), lane, bits) * _REMAINING
            total = tl.dot(value, ((code - zero) * scale).to(value.dtype), total, input_precision="ieee")
    out = y + tl.program_id(1) * tokens * outputs + token[:, None] * outputs + rows[None, :]
    tl.store(out, total.to(y.dtype.element_ty), mask=(token < tokens)[:, None] & (rows < outputs)[None, :])


def product(x: torch.Tensor, matrix: PackedMatrix) -> torch.Tensor:
    """x·Wᵀ, (tokens, outputs). x is (tokens, inputs), or has its lanes apart: (lanes, tokens, units), which reads faster."""
    packing, outputs = matrix.packing, matrix.outputs
    if x.ndim == 2:
        tokens, token_stride, lane_stride = len(x), *x.stride()
        unit_stride = packing.unit_codes * lane_stride
    else:
        tokens, (lane_stride, token_stride, unit_stride) = x.shape[1], x.stride()
    units = packing.inputs // packing.unit_codes
    if tokens == 1:
        y = x.new_empty(1, outputs)
        rows, step = TILES[packing.unit_words]
        with device_of(x):
            _vector_product[(triton.cdiv(outputs, rows),)](
                x, *pointers(matrix), y, outputs, lane_stride, unit_stride,
                **constants(packing), ROWS=rows, UNITS=min(step, triton.next_power_of_2(units)),
            )  # fmt: skip
        return y
    row_blocks = triton.cdiv(outputs, _BATCH_ROWS)
    parts = min(triton.cdiv(_BATCH_PROGRAMS, row_blocks), triton.cdiv(units, _BATCH_UNITS))
    part_units = triton.cdiv(triton.cdiv(units, parts), _BATCH_UNITS) * _BATCH_UNITS
    parts = triton.cdiv(units, part_units)
    y = x.new_empty(parts, tokens, outputs, dtype=x.dtype if parts == 1 else torch.float32)
    with device_of(x):
        _batch_product[(row_blocks, parts)](
            x, *pointers(matrix), y, tokens, outputs, lane_stride, token_stride, unit_stride, part_units,
            **constants(packing), TOKENS=max(16, triton.next_power_of_2(tokens)), ROWS=_BATCH_ROWS, UNITS=_BATCH_UNITS,
        )  # fmt: skip
    # The sum of parts in a fixed order: results repeat.
    return y[0] if parts == 1 else y.sum(0).to(x.dtype)
