import torch
from hypothesis import given
from hypothesis import strategies as st

from laaciq.quantization import quantize_matrix
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.refit import refit_scales


def case(seed, group_size, symmetric, keep=0.0, inputs=40):
    random = torch.Generator().manual_seed(seed)
    matrix = torch.randn(7, inputs, generator=random)
    plan = TensorPlan(
        name="w", shape=(7, inputs), bits=3, group_size=group_size, symmetric=symmetric, clip="mse", keep=keep
    )
    activations = torch.randn(60, inputs, generator=random) @ torch.randn(inputs, inputs, generator=random)
    return matrix, plan, quantize_matrix(matrix, plan), activations.T @ activations / 60


def output_errors(matrix, simulated, moments):
    """(ŵ − w)ᵀ H (ŵ − w) by row."""
    difference = (simulated - matrix).double()
    return torch.einsum("ri,ij,rj->r", difference, moments.double(), difference)


@given(st.integers(0, 1000), st.sampled_from([8, 16, "channel", "tensor"]), st.booleans(), st.sampled_from([0.0, 5.0]))
def test_refitted_scales_are_never_worse_than_the_shared_ones(seed, group_size, symmetric, keep):
    """As stored, in 16 bits, for every row; with one scale for the whole matrix, for the matrix."""
    matrix, plan, quantized, moments = case(seed, group_size, symmetric, keep)
    tables = refit_scales(matrix, quantized, plan, moments)[None]
    assert tables.dtype == quantized.grid.scales.dtype
    refitted = type(quantized)(quantized.codes, quantized.grid, quantized.kept, tables)
    before = output_errors(matrix, quantized.dequantize(plan), moments)
    after = output_errors(matrix, refitted.dequantize(plan, 0), moments)
    if group_size == "tensor":
        before, after = before.sum(), after.sum()
    # What float32 moments leave open.
    assert bool((after <= before * (1 + 1e-4)).all())


def test_groups_of_a_row_are_solved_together():
    """Against least squares on the activations themselves, group by group columns Σ_j x_j u_j."""
    matrix, plan, quantized, moments = case(3, 8, True)
    root = torch.linalg.cholesky(moments + 1e-6 * torch.eye(40)).T
    refitted = refit_scales(matrix, quantized, plan, root.T @ root).float()
    units = (quantized.codes.float() - 3).reshape(7, 5, 8)
    for row in range(7):
        columns = torch.stack([root[:, 8 * g : 8 * g + 8] @ units[row, g] for g in range(5)], 1)
        best = torch.linalg.lstsq(columns.double(), (root @ matrix[row]).double()[:, None]).solution[:, 0]

        def loss(scales, columns=columns, row=row):
            return float((columns.double() @ scales.double() - (root @ matrix[row]).double()).square().sum())

        # Damping and 16 bits cost a little of what the exact solution gains.
        shared = loss(quantized.grid.scales[row])
        assert loss(best) <= loss(refitted[row]) <= loss(best) + 0.2 * (shared - loss(best)) + 1e-9
