import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laaciq.models.foreign.bits import packed_words, unpack_words
from laaciq.models.foreign.gptq import zero_points


def pack(codes, bits):
    """One long number per row, low codes first, cut into words."""
    rows = []
    for row in codes.tolist():
        number = sum(code << (bits * place) for place, code in enumerate(row))
        words = [number >> (32 * at) & (2**32 - 1) for at in range(packed_words(len(row), bits))]
        rows.append([word - 2**32 if word >= 2**31 else word for word in words])
    return torch.tensor(rows, dtype=torch.int32)


@given(bits=st.integers(1, 8), count=st.integers(1, 70), seed=st.integers(0, 2**16))
def test_codes_come_back(bits, count, seed):
    codes = torch.randint(2**bits, (3, count), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    assert torch.equal(unpack_words(pack(codes, bits), bits, count), codes)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_zero_points_stored_less_one(bits):
    """GPTQModel subtracts 1 from every field by subtracting a word of 1s: a zero point of 0 borrows from its neighbour."""
    zeros = torch.randint(2**bits, (5, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert (zeros == 0).any()
    ones = pack(torch.ones(5, 64, dtype=torch.uint8), bits)
    assert torch.equal(zero_points(pack(zeros, bits) - ones, bits, 64, stored_less_one=True), zeros)
    assert torch.equal(zero_points(pack(zeros, bits), bits, 64, stored_less_one=False), zeros)


def test_zero_points_of_3_bits_stored_less_one():
    """Here the fields are counted down one by one, from 0 to 7."""
    zeros = torch.arange(64, dtype=torch.uint8)[None] % 8
    assert torch.equal(zero_points(pack((zeros + 7) % 8, 3), 3, 64, stored_less_one=True), zeros)
