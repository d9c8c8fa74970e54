import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from laaciq.exporting.gguf_blocks import (
    OFFSET_ERROR,
    Blocks,
    pack_q4_0,
    pack_q4_1,
    pack_q5_0,
    pack_q8_0,
    to_16bit_blocks,
    to_blocks,
)
from laaciq.options import BITS
from laaciq.quantization import quantize_matrix
from laaciq.quantization.plan import TensorPlan

SHAPE = (3, 2)
HALVES = hnp.arrays(np.float16, SHAPE, elements=st.floats(-1000, 1000, width=16))


def units(low, high):
    return hnp.arrays(np.int16, (*SHAPE, 32), elements=st.integers(low, high))


def read(blocks):
    return gguf.quants.dequantize(blocks.data, gguf.GGMLQuantizationType[blocks.type])


def flat(weights):
    return weights.reshape(len(weights), -1)


@pytest.mark.parametrize(
    ("pack", "name", "bound"), [(pack_q4_0, "Q4_0", 8), (pack_q5_0, "Q5_0", 16), (pack_q8_0, "Q8_0", 128)]
)
def test_the_gguf_library_reads_steps_times_scales(pack, name, bound):
    @given(HALVES, units(-bound, bound - 1))
    def check(scales, steps):
        expected = scales.astype(np.float32)[..., None] * steps
        assert np.array_equal(read(Blocks(name, pack(scales, steps))), flat(expected))

    check()


@given(HALVES, HALVES, units(0, 15))
def test_the_gguf_library_reads_codes_with_an_offset(scales, offsets, codes):
    expected = scales.astype(np.float32)[..., None] * codes + offsets.astype(np.float32)[..., None]
    assert np.array_equal(read(Blocks("Q4_1", pack_q4_1(scales, offsets, codes))), flat(expected))


def quantized(matrix, **options):
    plan = TensorPlan(
        name="w", shape=tuple(matrix.shape), **{"bits": 4, "group_size": 64, "symmetric": True, **options}
    )
    return quantize_matrix(matrix, plan), plan


def random_matrix(rows=8, columns=192, scale=0.02):
    return scale * torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bits", BITS)
# The last group of 128 is short in rows of 192, and still made of whole blocks.
@pytest.mark.parametrize("group_size", [32, 64, 128, "channel", "tensor"])
def test_symmetric_grids_are_carried_exactly(bits, group_size):
    matrix, plan = quantized(random_matrix(), bits=bits, group_size=group_size)
    blocks = to_blocks(matrix, plan)
    assert blocks.type == ("Q4_0" if bits <= 4 else "Q5_0" if bits == 5 else "Q8_0")
    assert np.array_equal(read(blocks), matrix.dequantize(plan).numpy())


@pytest.mark.parametrize(("bits", "expected"), [(2, "Q4_0"), (3, "Q4_0"), (6, "Q8_0")])
@pytest.mark.parametrize("group_size", [32, 64, "channel", "tensor"])
def test_affine_grids_of_other_bits_are_carried_exactly(bits, expected, group_size):
    matrix, plan = quantized(random_matrix(), bits=bits, group_size=group_size, symmetric=False)
    blocks = to_blocks(matrix, plan)
    assert blocks.type == expected
    assert np.array_equal(read(blocks), matrix.dequantize(plan).numpy())


@pytest.mark.parametrize("group_size", [32, 64, "channel"])
def test_the_affine_4_bit_grid_moves_by_no_more_than_its_offset_is_rounded(group_size):
    matrix, plan = quantized(random_matrix() + 0.01, group_size=group_size, symmetric=False)
    blocks = to_blocks(matrix, plan)
    assert blocks.type == "Q4_1"
    moved = np.abs(read(blocks) - matrix.dequantize(plan).numpy()).max()
    step = matrix.grid.scales.float().max().item()
    # z ≤ 15, and float16 rounds by at most one part in 2¹¹.
    assert 0 < moved <= 15 / 2**11 * step < OFFSET_ERROR * step


def test_affine_8_bits_around_the_middle_fit():
    weights = random_matrix()
    matrix, plan = quantized(torch.cat([weights, -weights]), bits=8, group_size="tensor", symmetric=False)
    blocks = to_blocks(matrix, plan)
    assert blocks.type == "Q8_0"
    assert np.array_equal(read(blocks), matrix.dequantize(plan).numpy())


def test_affine_8_bits_on_one_side_of_zero_do_not_fit():
    matrix, plan = quantized(random_matrix().abs(), bits=8, symmetric=False)
    assert "255 steps from zero" in to_blocks(matrix, plan)


def test_groups_that_are_no_blocks():
    assert "groups of 16" in to_blocks(*quantized(random_matrix(), group_size=16))
    assert "rows of 48" in to_blocks(*quantized(random_matrix(columns=48), group_size="channel"))


def test_scales_outside_of_float16():
    """bfloat16 is chosen for the scales of weights that are too small for float16."""
    matrix, plan = quantized(random_matrix(scale=1e-7))
    assert matrix.grid.scales.dtype == torch.bfloat16
    assert "range of float16" in to_blocks(matrix, plan)


def test_scales_in_bfloat16_that_float16_holds():
    matrix, plan = quantized(random_matrix())
    brain = type(matrix.grid)(matrix.grid.scales.bfloat16(), None)
    matrix = type(matrix)(matrix.codes, brain)
    assert np.array_equal(read(to_blocks(matrix, plan)), matrix.dequantize(plan).numpy())


def test_groups_of_zeros():
    weights = random_matrix()
    weights[:, :64] = 0
    for symmetric in (True, False):
        matrix, plan = quantized(weights, symmetric=symmetric)
        assert (read(to_blocks(matrix, plan))[:, :64] == 0).all()


def test_sixteen_bits_are_those_that_lose_nothing():
    half, brain = random_matrix().half().float(), random_matrix(scale=1e-6).bfloat16().float()
    for weights, expected in ((half, "F16"), (brain, "BF16")):
        blocks = to_16bit_blocks(weights.numpy())
        assert blocks.type == expected
        assert np.array_equal(read(blocks), weights.numpy())


def test_sixteen_bits_of_what_fits_neither():
    weights = random_matrix().numpy()
    assert to_16bit_blocks(weights).type == "F16"
    assert np.allclose(read(to_16bit_blocks(weights)), weights, rtol=2**-11, atol=2**-25)
    large = 1e6 * weights
    assert to_16bit_blocks(large).type == "BF16"
    assert np.allclose(read(to_16bit_blocks(large)), large, rtol=2**-8, atol=0)
    assert torch.equal(torch.from_numpy(read(to_16bit_blocks(large))), torch.from_numpy(large).bfloat16().float())
