"""Triton kernels that dequantize a packed matrix, and that sum over the inputs of its groups, which gives gradients of scales."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from laaciq.quantization.products import PackedMatrix
from laaciq.quantization.triton_codes import codes_of_units, constants, device_of, pointers, zero_points

# Units per program of dequantization.
_UNITS = 512
# Weights per program of sums by group.
_SUMMED = 4096


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
    code = codes_of_units(codes + row * (units * unit_words) + unit * unit_words, inside, bits, unit_codes, unit_words)
    if group % unit_codes == 0:
        groups = row * row_groups + unit * unit_codes // group
        zero = zero_points(zeros, groups, inside, bits, affine)[:, None]
        scale = tl.load(scales + groups, mask=inside, other=0.0).to(tl.float32)[:, None]
    else:
        groups = row * row_groups + (unit[:, None] * unit_codes + lane) // group
        # Lanes of units beyond the row would lie in groups of the next one.
        zero = zero_points(zeros, groups, inside[:, None], bits, affine)
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
    code = codes_of_units(codes + row * (units * unit_words) + unit * unit_words, inside, bits, unit_codes, unit_words)
    zero = zero_points(zeros, row * row_groups + unit // group_units, inside, bits, affine)[:, None]
    places = values + row * inputs + unit[:, None] * unit_codes + tl.arange(0, unit_codes)[None, :]
    value = tl.load(places, mask=inside[:, None], other=0.0).to(tl.float32)
    by_unit = tl.sum((code - zero) * value, axis=1)
    by_group = tl.sum(tl.reshape(by_unit, [GROUPS, group_units]), axis=1)
    tl.store(sums + row * row_groups + groups, by_group, mask=groups < row_groups)


def dequantize(matrix: PackedMatrix, dtype: torch.dtype) -> torch.Tensor:
    """W, (outputs, inputs)."""
    packing = matrix.packing
    weights = matrix.codes.new_empty(matrix.outputs, packing.inputs, dtype=dtype)
    units = packing.inputs // packing.unit_codes
    tile = min(_UNITS, triton.next_power_of_2(units))
    with device_of(weights):
        _dequantize[(matrix.outputs, triton.cdiv(units, tile))](
            *pointers(matrix), weights, **constants(packing), UNITS=tile
        )
    return weights


def group_sums(matrix: PackedMatrix, values: torch.Tensor) -> torch.Tensor:
    """Σ (c − z)·v over the inputs of each group, (outputs, groups), for values in the matrix's shape; scales are not read. The packing must
    be one of `sums_by_group`.
    """
    packing = matrix.packing
    sums = values.new_empty(matrix.outputs, packing.row_groups, dtype=torch.float32)
    groups = min(triton.next_power_of_2(packing.row_groups), max(1, _SUMMED // packing.group))
    codes, _, zeros = pointers(matrix)
    with device_of(values):
        _group_sums[(matrix.outputs, triton.cdiv(packing.row_groups, groups))](
            codes, zeros, values.contiguous(), sums, **constants(packing), GROUPS=groups
        )
    return sums
