import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laaciq.clipping.quantizer import symmetric_levels
from laaciq.options import BITS
from laaciq.quantization import quantize_matrix
from laaciq.quantization.packing import pack, unpack
from laaciq.quantization.plan import TensorPlan

GROUP = st.sampled_from([1, 3, 8, 64, "channel", "tensor"])


def plan_for(matrix, bits, group_size, symmetric):
    return TensorPlan(name="w", shape=tuple(matrix.shape), bits=bits, group_size=group_size, symmetric=symmetric)


@st.composite
def matrices(draw):
    """Odd shapes, wild scales, zeros, one-sided rows."""
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 70))
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    matrix = torch.randn(rows, columns, generator=random) * 10.0 ** draw(st.integers(-6, 3))
    if draw(st.booleans()):
        matrix[draw(st.integers(0, rows - 1))] = 0
    return matrix.abs() if draw(st.booleans()) else matrix


@settings(deadline=None)
@given(matrices(), st.sampled_from(BITS), GROUP, st.booleans())
def test_codes_fit_their_bits_and_errors_stay_within_half_a_step(matrix, bits, group_size, symmetric):
    plan = plan_for(matrix, bits, group_size, symmetric)
    quantized = quantize_matrix(matrix, plan)
    assert quantized.grid.scales.numel() == plan.groups
    top = 2 * symmetric_levels(bits) if symmetric else 2**bits - 1
    assert int(quantized.codes.max()) <= top
    wide = torch.nn.functional.pad(matrix, (0, -matrix.shape[1] % plan.group_inputs))
    scales = quantized.grid.scales.float().reshape(-1, 1).expand(-1, wide.numel() // plan.groups).reshape(wide.shape)
    step = scales[:, : matrix.shape[1]]
    error = (quantized.dequantize(plan) - matrix).abs()
    # Half a step; scales rounded to 16 bits may clip the largest weight by 2⁻⁸ of it, and an affine zero point is rounded too.
    slack = 0.01 * matrix.abs() + 0.5 * step * (not symmetric) + 1e-30
    assert bool((error <= 0.5 * step * 1.001 + slack).all())


@settings(deadline=None)
@given(matrices(), st.sampled_from(BITS), GROUP)
def test_a_symmetric_grid_is_idempotent(matrix, bits, group_size):
    """An affine one is not: its min–max changes when the zero point is rounded."""
    plan = plan_for(matrix, bits, group_size, True)
    once = quantize_matrix(matrix, plan).dequantize(plan)
    torch.testing.assert_close(quantize_matrix(once, plan).dequantize(plan), once, rtol=1e-3, atol=0)


@given(st.integers(0, 100), st.booleans())
def test_more_bits_lose_less(seed, symmetric):
    matrix = torch.randn(16, 128, generator=torch.Generator().manual_seed(seed))
    errors = []
    for bits in BITS:
        plan = plan_for(matrix, bits, "channel", symmetric)
        errors.append(float((quantize_matrix(matrix, plan).dequantize(plan) - matrix).square().sum()))
    assert errors == sorted(errors, reverse=True)


def test_finer_groups_lose_less():
    matrix = torch.randn(64, 256, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 3, 256)
    errors = []
    for group_size in ("tensor", "channel", 64, 16):
        plan = plan_for(matrix, 4, group_size, True)
        errors.append(float((quantize_matrix(matrix, plan).dequantize(plan) - matrix).square().sum()))
    assert errors == sorted(errors, reverse=True)


@given(st.integers(1, 8), st.lists(st.integers(0, 255), min_size=1, max_size=50))
def test_packing_is_dense_and_exact(bits, values):
    codes = torch.tensor([value % 2**bits for value in values], dtype=torch.uint8)
    packed = pack(codes, bits)
    assert packed.numel() == -(-len(values) // 8) * bits
    assert torch.equal(unpack(packed, bits, (len(values),)), codes)
