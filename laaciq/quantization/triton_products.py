"""Triton kernels that multiply with a matrix as a checkpoint stores it: packed codes, scales and zero points, dequantized on the way.

Codes are read as 32-bit words. A unit is the shortest run of whole words that holds whole codes: one word at 2, 4 and 8 bits, three at 3 and
6 bits. If a unit divides the row, every row begins with one; `unit_codes` says how many codes a unit has, and each of them is a lane.

w = s·(c − z), so Σ w·x = s·(Σ c·x − z·Σ x) over the inputs that share a scale. A code needs no conversion to a float and mostly no shift: its
bits, where they are in the word and with all others cleared, are the subnormal float32 c·2^(place − 149), exactly. GPUs multiply those at full
speed. The input is multiplied by a power of two beforehand, so that the product is a normal number.

Triton is imported here, and this module only where a kernel runs (`laaciq.quantization.products`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl

from laaciq.quantization.products import PackedMatrix, Packing

# The power of two that inputs are multiplied by, and what then remains: 2⁻¹⁴⁹·2⁸⁴ = 2⁻⁶⁵. Inputs up to 2⁴⁴ stay finite.
_RAISED = tl.constexpr(2.0**84)
_REMAINING = tl.constexpr(2.0**65)

# Tile of the product with one token, rows and units per step, for units of one word and of three. A thread then loads four words of each row,
# or one unit of twice as many rows.
TILES = {1: (4, 512), 3: (8, 128)}
# Tile of the product with several tokens, and the number of programs below which the inputs are divided among more of them.
_BATCH_ROWS, _BATCH_UNITS, _BATCH_PROGRAMS = 64, 32, 512
# Units per program of dequantization.
_UNITS = 512
# Weights per program of sums by group.
_SUMMED = 4096


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
def _words(codes, inside, words: tl.constexpr):  # type: ignore[no-untyped-def]
    """The words of a unit, three of them; those that a unit does not have repeat the first."""
    first = tl.load(codes, mask=inside, other=0)
    if words == 1:
        return first, first, first
    return first, tl.load(codes + 1, mask=inside, other=0), tl.load(codes + 2, mask=inside, other=0)


@triton.jit
def _zero_points(zeros, groups, inside, bits: tl.constexpr, affine: tl.constexpr):  # type: ignore[no-untyped-def]
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
        word0, word1, word2 = _words(words, inside, unit_words)
        if group % unit_codes == 0:
            sums, input_sum = tl.zeros([UNITS, ROWS], tl.float32), tl.zeros([UNITS], tl.float32)
            for lane in tl.static_range(unit_codes):
                value = tl.load(x + lane * lane_stride + unit * unit_stride, mask=unit < units, other=0.0).to(
                    tl.float32
                )
                input_sum += value
                sums += _lane(word0, word1, word2, lane, bits) * _raised(value, lane, bits)[:, None]
            groups = rows[None, :] * row_groups + (unit * unit_codes // group)[:, None]
            zero = _zero_points(zeros, groups, inside, bits, affine)
            scale = tl.load(scales + groups, mask=inside, other=0.0).to(tl.float32)
            total += (sums * _REMAINING - zero * input_sum[:, None]) * scale
        else:
            for lane in tl.static_range(unit_codes):
                value = tl.load(x + lane * lane_stride + unit * unit_stride, mask=unit < units, other=0.0).to(
                    tl.float32
                )
                code = _raised(_lane(word0, word1, word2, lane, bits), lane, bits) * _REMAINING
                groups = rows[None, :] * row_groups + ((unit * unit_codes + lane) // group)[:, None]
                zero = _zero_points(zeros, groups, inside, bits, affine)
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
        word0, word1, word2 = _words(words, inside, unit_words)
        groups = rows[None, :] * row_groups + (unit * unit_codes // group)[:, None]
        zero = _zero_points(zeros, groups, inside, bits, affine)
        scale = tl.load(scales + groups, mask=inside, other=0.0).to(tl.float32)
        for lane in tl.static_range(unit_codes):
            places = token[:, None] * token_stride + lane * lane_stride + unit[None, :] * unit_stride
            value = tl.load(x + places, mask=wanted, other=0.0)
            if group % unit_codes:
                groups = rows[None, :] * row_groups + ((unit * unit_codes + lane) // group)[:, None]
                zero = _zero_points(zeros, groups, inside, bits, affine)
                scale = tl.load(scales + groups, mask=inside, other=0.0).to(tl.float32)
            code = _raised(_lane(word0, word1, word2, lane, bits), lane, bits) * _REMAINING
            total = tl.dot(value, ((code - zero) * scale).to(value.dtype), total, input_precision="ieee")
    out = y + tl.program_id(1) * tokens * outputs + token[:, None] * outputs + rows[None, :]
    tl.store(out, total.to(y.dtype.element_ty), mask=(token < tokens)[:, None] & (rows < outputs)[None, :])


@triton.jit
def _unit_codes(codes, inside, bits: tl.constexpr, unit_codes: tl.constexpr, unit_words: tl.constexpr):  # type: ignore[no-untyped-def]
    """The codes of units as floats, (units, lanes)."""
    lane = tl.arange(0, unit_codes)[None, :]
    word0, word1, word2 = _words(codes, inside, unit_words)
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


@triton.jit
def _dequantize(  # type: ignore[no-untyped-def]
    codes,
    scales,
    zeros,
    weights,
    inputs: tl.constexpr,
    bits: tl.constexpr,
    unit_codes: tl.constexpr,
    unit_words: tl.constexpr,
    group: tl.constexpr,
    row_groups: tl.constexpr,
    affine: tl.constexpr,
    UNITS: tl.constexpr,
):
    """A program writes `UNITS` units of one row."""
    units: tl.constexpr = inputs // unit_codes
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    lane = tl.arange(0, unit_codes)[None, :]
    inside = unit < units
    code = _unit_codes(codes + row * (units * unit_words) + unit * unit_words, inside, bits, unit_codes, unit_words)
    if group % unit_codes == 0:
        groups = row * row_groups + unit * unit_codes // group
        zero = _zero_points(zeros, groups, inside, bits, affine)[:, None]
        scale = tl.load(scales + groups, mask=inside, other=0.0).to(tl.float32)[:, None]
    else:
        groups = row * row_groups + (unit[:, None] * unit_codes + lane) // group
        # Lanes of units beyond the row would lie in groups of the next one.
        zero = _zero_points(zeros, groups, inside[:, None], bits, affine)
        scale = tl.load(scales + groups, mask=inside[:, None], other=0.0).to(tl.float32)
    place = weights + row * inputs + unit[:, None] * unit_codes + lane
    tl.store(place, ((code - zero) * scale).to(weights.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _group_sums(  # type: ignore[no-untyped-def]
    codes,
    zeros,
    values,
    sums,
    inputs: tl.constexpr,
    bits: tl.constexpr,
    unit_codes: tl.constexpr,
    unit_words: tl.constexpr,
    group: tl.constexpr,
    row_groups: tl.constexpr,
    affine: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """A program sums over `GROUPS` groups of one row. A group holds whole units, a power of two of them."""
    units: tl.constexpr = inputs // unit_codes
    group_units: tl.constexpr = group // unit_codes
    row = tl.program_id(0).to(tl.int64)
    groups = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    unit = tl.program_id(1) * (GROUPS * group_units) + tl.arange(0, GROUPS * group_units)
    inside = unit < units
    code = _unit_codes(codes + row * (units * unit_words) + unit * unit_words, inside, bits, unit_codes, unit_words)
    zero = _zero_points(zeros, row * row_groups + unit // group_units, inside, bits, affine)[:, None]
    places = values + row * inputs + unit[:, None] * unit_codes + tl.arange(0, unit_codes)[None, :]
    value = tl.load(places, mask=inside[:, None], other=0.0).to(tl.float32)
    by_unit = tl.sum((code - zero) * value, axis=1)
    by_group = tl.sum(tl.reshape(by_unit, [GROUPS, group_units]), axis=1)
    tl.store(sums + row * row_groups + groups, by_group, mask=groups < row_groups)


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
        with _device_of(x):
            _vector_product[(triton.cdiv(outputs, rows),)](
                x, *_pointers(matrix), y, outputs, lane_stride, unit_stride,
                **_constants(packing), ROWS=rows, UNITS=min(step, triton.next_power_of_2(units)),
            )  # fmt: skip
        return y
    row_blocks = triton.cdiv(outputs, _BATCH_ROWS)
    parts = min(triton.cdiv(_BATCH_PROGRAMS, row_blocks), triton.cdiv(units, _BATCH_UNITS))
    part_units = triton.cdiv(triton.cdiv(units, parts), _BATCH_UNITS) * _BATCH_UNITS
    parts = triton.cdiv(units, part_units)
    y = x.new_empty(parts, tokens, outputs, dtype=x.dtype if parts == 1 else torch.float32)
    with _device_of(x):
        _batch_product[(row_blocks, parts)](
            x, *_pointers(matrix), y, tokens, outputs, lane_stride, token_stride, unit_stride, part_units,
            **_constants(packing), TOKENS=max(16, triton.next_power_of_2(tokens)), ROWS=_BATCH_ROWS, UNITS=_BATCH_UNITS,
        )  # fmt: skip
    # The sum of parts in a fixed order: results repeat.
    return y[0] if parts == 1 else y.sum(0).to(x.dtype)


def dequantize(matrix: PackedMatrix, dtype: torch.dtype) -> torch.Tensor:
    """W, (outputs, inputs)."""
    packing = matrix.packing
    weights = matrix.codes.new_empty(matrix.outputs, packing.inputs, dtype=dtype)
    units = packing.inputs // packing.unit_codes
    tile = min(_UNITS, triton.next_power_of_2(units))
    with _device_of(weights):
        _dequantize[(matrix.outputs, triton.cdiv(units, tile))](
            *_pointers(matrix), weights, **_constants(packing), UNITS=tile
        )
    return weights


def group_sums(matrix: PackedMatrix, values: torch.Tensor) -> torch.Tensor:
    """Σ (c − z)·v over the inputs of each group, (outputs, groups), for values in the matrix's shape; scales are not read. The packing must
    be one of `sums_by_group`.
    """
    packing = matrix.packing
    sums = values.new_empty(matrix.outputs, packing.row_groups, dtype=torch.float32)
    groups = min(triton.next_power_of_2(packing.row_groups), max(1, _SUMMED // packing.group))
    codes, _, zeros = _pointers(matrix)
    with _device_of(values):
        _group_sums[(matrix.outputs, triton.cdiv(packing.row_groups, groups))](
            codes, zeros, values.contiguous(), sums, **_constants(packing), GROUPS=groups
        )
    return sums


def _pointers(matrix: PackedMatrix) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes as words, scales, and zero points; without those, a pointer that is never read."""
    return matrix.codes.view(torch.int32), matrix.scales, matrix.codes if matrix.zeros is None else matrix.zeros


def _constants(packing: Packing) -> dict[str, int | bool]:
    """What kernels are compiled for."""
    return vars(packing) | {"unit_words": packing.unit_words, "unit_codes": packing.unit_codes}


def _device_of(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Triton starts kernels on the current device. Its interpreter reads tensors of the CPU."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
