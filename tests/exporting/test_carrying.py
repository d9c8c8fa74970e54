import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laaciq.exporting import gptq, pack_quantized
from laaciq.exporting.carrying import carry, fit, pack_words
from laaciq.options import BITS
from laaciq.quantization import quantize_matrix
from laaciq.quantization.plan import TensorPlan

OFFERS = [
    {"bits": pack_quantized.BITS, "groups": None},
    {"bits": gptq.BITS, "groups": gptq.GROUPS},
    {"bits": (8,), "groups": (32,)},
]


@st.composite
def plans(draw):
    return TensorPlan(
        name="layer.weight",
        shape=(draw(st.integers(1, 5)), 32 * draw(st.integers(1, 5))),
        bits=draw(st.sampled_from(BITS)),
        group_size=draw(st.sampled_from([16, 32, 48, 64, 96, 1000, "channel", "tensor"])),
        symmetric=draw(st.booleans()),
    )


@given(plan=plans(), offer=st.sampled_from(OFFERS), seed=st.integers(0, 99))
def test_what_is_carried_means_the_same_weights(plan, offer, seed):
    weights = torch.randn(plan.shape, generator=torch.Generator().manual_seed(seed))
    quantized = quantize_matrix(weights, plan)
    layout = fit(plan, **offer)
    if layout is None:
        assert not any(math.gcd(plan.group_inputs, plan.shape[1]) % size == 0 for size in offer["groups"])
        return
    assert layout.bits in offer["bits"]
    carried = carry(quantized, plan, layout)
    assert carried.codes.dtype == carried.zeros.dtype == torch.uint8
    assert max(int(carried.codes.max()), int(carried.zeros.max())) < 2**layout.bits
    assert torch.equal(carried.dequantize(), quantized.dequantize(plan))


def test_widening_takes_no_more_than_it_must():
    plan = TensorPlan(name="layer.weight", shape=(8, 160), bits=6, group_size=64, symmetric=True)
    layout = fit(plan, bits=gptq.BITS, groups=gptq.GROUPS)
    # Groups of 64 in rows of 160: the last is short, 32 divides both.
    assert (layout.bits, layout.group_size) == (8, 32)
    assert fit(plan, bits=pack_quantized.BITS, groups=None).bits == 6
    odd = plan.model_copy(update={"shape": (8, 100)})
    # gcd(64, 100) = 4: a scale for four codes is no compression.
    assert fit(odd, bits=pack_quantized.BITS, groups=None) is None


@given(bits=st.sampled_from(BITS), rows=st.integers(1, 3), count=st.integers(1, 70), seed=st.integers(0, 99))
def test_words_hold_a_stream_of_bits(bits, rows, count, seed):
    codes = torch.randint(0, 2**bits, (rows, count), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    words = pack_words(codes, bits)
    assert words.dtype == torch.int32
    assert words.shape == (rows, math.ceil(count * bits / 32))
    for row in range(rows):
        stream = int.from_bytes(words[row].numpy().astype("<i4").tobytes(), "little")
        assert [stream >> (bits * i) & (2**bits - 1) for i in range(count)] == codes[row].tolist()


def unpack_compressed(words, bits, count):
    """From the definition: signed codes with 2^(B−1) added, code i in bits i·B to (i+1)·B of its row."""
    rows = []
    for row in words:
        stream = int.from_bytes(row.numpy().astype("<i4").tobytes(), "little")
        rows.append([(stream >> (bits * i) & (2**bits - 1)) - 2 ** (bits - 1) for i in range(count)])
    return torch.tensor(rows)


def unpack_gptq(words, bits):
    """Down the columns, as AutoGPTQ wrote it: 32/B codes per word or, of three bits, 32 codes in three words, two of them across."""
    words = words.to(torch.int64) & 0xFFFFFFFF
    if bits != 3:
        codes = [word >> shift & (2**bits - 1) for word in words for shift in range(0, 32, bits)]
        return torch.stack(codes)
    codes = []
    for first, second, third in words.reshape(-1, 3, words.shape[1]):
        codes += [first >> shift & 7 for shift in range(0, 30, 3)]
        codes.append(first >> 30 & 3 | (second & 1) << 2)
        codes += [second >> shift & 7 for shift in range(1, 31, 3)]
        codes.append(second >> 31 & 1 | (third & 3) << 1)
        codes += [third >> shift & 7 for shift in range(2, 32, 3)]
    return torch.stack(codes)


CASES = [
    (bits, group, symmetric) for bits in BITS for group in (32, 48, "channel", "tensor") for symmetric in (True, False)
]


def quantized_case(bits, group_size, symmetric):
    plan = TensorPlan(name="layer.weight", shape=(64, 96), bits=bits, group_size=group_size, symmetric=symmetric)
    # Off centre, so that an affine grid's zero points are not all in the middle, and some are 0.
    weights = torch.randn(plan.shape, generator=torch.Generator().manual_seed(bits)) + 2 * (
        torch.arange(64)[:, None] % 3
    )
    return plan, quantize_matrix(weights, plan)


@pytest.mark.parametrize(("bits", "group_size", "symmetric"), CASES)
def test_pack_quantized_by_its_definition(bits, group_size, symmetric):
    plan, quantized = quantized_case(bits, group_size, symmetric)
    layout = fit(plan, bits=pack_quantized.BITS, groups=None)
    parts = pack_quantized.pack_parts(carry(quantized, plan, layout), {})
    outputs, inputs = parts["weight_shape"].tolist()
    codes = unpack_compressed(parts["weight_packed"], layout.bits, inputs)
    zeros = torch.zeros_like(parts["weight_scale"])
    if not symmetric:
        zeros = unpack_compressed(parts["weight_zero_point"].t().contiguous(), layout.bits, outputs).t()
    else:
        assert "weight_zero_point" not in parts
    size = inputs // parts["weight_scale"].shape[1]
    weights = (codes - zeros.repeat_interleave(size, 1)) * parts["weight_scale"].float().repeat_interleave(size, 1)
    assert torch.equal(weights, quantized.dequantize(plan))


@pytest.mark.parametrize(("bits", "group_size", "symmetric"), CASES)
def test_gptq_by_its_definition(bits, group_size, symmetric):
    plan, quantized = quantized_case(bits, group_size, symmetric)
    layout = fit(plan, bits=gptq.BITS, groups=gptq.GROUPS)
    config = gptq.quantization_config({"layer": layout}, [])
    parts = gptq.pack_parts(carry(quantized, plan, layout), config)
    codes = unpack_gptq(parts["qweight"], layout.bits)
    zeros = unpack_gptq(parts["qzeros"].t(), layout.bits).t() + (1 if config["checkpoint_format"] == "gptq" else 0)
    assert (config["checkpoint_format"] == "gptq") == symmetric
    groups = parts["g_idx"].long()
    weights = (codes - zeros[groups]) * parts["scales"].float()[groups]
    assert torch.equal(weights.t(), quantized.dequantize(plan))
