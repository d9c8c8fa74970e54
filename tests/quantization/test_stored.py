import torch
from hypothesis import given
from hypothesis import strategies as st

from laaciq.options import BITS
from laaciq.quantization import quantize_matrix
from laaciq.quantization.kept import rounded_to_16bit, to_16bit
from laaciq.quantization.packing import pack, unpack_at
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.stored import part_shapes, read_rows, read_stored, stored_tensors


@given(
    st.integers(0, 1000),
    st.sampled_from(BITS),
    st.sampled_from([3, 8, "channel", "tensor"]),
    st.booleans(),
    st.sampled_from([0.0, 5.0]),
    st.integers(0, 3),
    st.lists(st.integers(0, 8), min_size=1, max_size=12),
)
def test_rows_are_read_as_the_whole_is(seed, bits, group_size, symmetric, keep, rank, rows):
    """Also where rows share bytes, and where a row is asked for twice."""
    matrix = torch.randn(9, 21, generator=torch.Generator().manual_seed(seed))
    plan = TensorPlan(
        name="w", shape=(9, 21), bits=bits, group_size=group_size, symmetric=symmetric, keep=keep, rank=rank
    )
    quantized = quantize_matrix(matrix, plan)
    parts = stored_tensors(quantized, plan)
    assert {name: tuple(part.shape) for name, part in parts.items()} == {
        name: shape for name, (shape, _) in part_shapes(plan).items()
    }
    whole = read_stored(parts, plan).dequantize(plan)
    assert torch.equal(whole, quantized.dequantize(plan))
    some = plan.model_copy(update={"shape": (len(rows), 21)})
    result = read_rows(parts, plan, torch.tensor(rows)).dequantize(some)
    # A product of fewer rows may add up in another order.
    torch.testing.assert_close(result, whole[rows], rtol=1e-6, atol=1e-6 if rank else 0)


@given(st.integers(1, 8), st.lists(st.integers(0, 255), min_size=1, max_size=50))
def test_codes_are_found_where_they_lie(bits, values):
    codes = torch.tensor([value % 2**bits for value in values], dtype=torch.uint8)
    places = torch.arange(len(values)).flip(0)
    assert torch.equal(unpack_at(pack(codes, bits), bits, places), codes.flip(0))


@given(st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 1e5]), st.booleans())
def test_rounding_without_waiting_is_rounding(seed, size, brain):
    """To bfloat16 if that loses nothing or float16 could overflow, else to float16."""
    vector = size * torch.randn(5, generator=torch.Generator().manual_seed(seed))
    vector = vector.bfloat16().float() if brain else vector
    assert torch.equal(rounded_to_16bit(vector), to_16bit(vector).float())
