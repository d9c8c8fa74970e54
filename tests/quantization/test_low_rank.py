import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laaciq.quantization import low_rank, quantize_matrix
from laaciq.quantization.calibration import TensorCalibration
from laaciq.quantization.low_rank import fit_low_rank
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.refit import refit_scales

WEIGHING = st.sampled_from(["identity", "diagonal", "full", "singular"])


def case(seed, weighing, shape=(12, 20)):
    """A residual, the known moments of its inputs, and the H that they imply."""
    random = torch.Generator().manual_seed(seed)
    residual = torch.randn(shape, generator=random) * 10.0 ** float(torch.randint(-4, 2, (1,), generator=random))
    rows = torch.randn(4 if weighing == "singular" else 60, shape[1], generator=random)
    full = (rows * torch.logspace(-1, 1, shape[1])).T @ (rows * torch.logspace(-1, 1, shape[1])) / len(rows)
    if weighing == "identity":
        return residual, None, torch.eye(shape[1])
    if weighing == "diagonal":
        return residual, full.diagonal(), full.diagonal().diag()
    return residual, full, full


def error(residual, moments):
    wide = residual.double()
    return float(torch.einsum("ri,ij,rj->", wide, moments.double(), wide))


@given(st.integers(0, 300), WEIGHING, st.integers(1, 12))
def test_outputs_never_lose_more_with_a_correction(seed, weighing, rank):
    residual, known_moments, moments = case(seed, weighing)
    correction = fit_low_rank(residual, rank, known_moments)
    assert correction.left.shape == (12, rank)
    assert correction.right.shape == (rank, 20)
    assert {correction.left.dtype, correction.right.dtype} <= {torch.float16, torch.bfloat16}
    # What damping and float32 leave open.
    assert error(residual - correction.product(), moments) <= error(residual, moments) * (1 + 1e-4)


@given(st.integers(0, 300), st.sampled_from(["identity", "diagonal", "full"]))
def test_a_larger_rank_loses_less(seed, weighing):
    residual, known_moments, moments = case(seed, weighing)
    correction = [
        error(residual - fit_low_rank(residual, rank, known_moments).product(), moments) for rank in (1, 2, 4, 8, 12)
    ]
    assert correction == sorted(correction, reverse=True)
    # At full rank nothing is left but the rounding of A and B to eleven bits, or eight.
    assert correction[-1] < 1e-3 * error(residual, moments)


@given(st.integers(0, 300), st.sampled_from(["identity", "diagonal", "full"]), st.integers(1, 12))
def test_it_is_the_truncated_svd(seed, weighing, rank):
    """In numpy, by a symmetric root: whatever the root of H, the best product is the same."""
    residual, known_moments, moments = case(seed, weighing)
    values, vectors = np.linalg.eigh(moments.double().numpy())
    root = vectors * np.sqrt(values) @ vectors.T
    u, s, v = np.linalg.svd(residual.double().numpy() @ root)
    expected = u[:, :rank] * s[:rank] @ v[:rank] @ np.linalg.inv(root)
    correction = fit_low_rank(residual, rank, known_moments).product().double().numpy()
    # In the norm that counts: elsewhere rounding to 16 bits is magnified by the inverse root.
    assert np.linalg.norm((correction - expected) @ root) < 0.01 * np.linalg.norm(expected @ root)


def test_large_matrices_lose_hardly_more_by_subspace_iteration(monkeypatch):
    residual, known_moments, moments = case(0, "full", (90, 120))
    exact = error(residual - fit_low_rank(residual, 8, known_moments).product(), moments)
    monkeypatch.setattr(low_rank, "_EXACT", 0)
    iterated = error(residual - fit_low_rank(residual, 8, known_moments).product(), moments)
    assert exact < error(residual, moments)
    assert iterated <= 1.01 * exact


@pytest.mark.parametrize("told", [None, torch.zeros(6), torch.zeros(6, 6)])
def test_nothing_to_correct_is_no_failure(told):
    """No residual, and inputs that never fire."""
    for residual in (torch.zeros(5, 6), torch.randn(5, 6, generator=torch.Generator().manual_seed(0))):
        correction = fit_low_rank(residual, 3, told).product()
        assert torch.isfinite(correction).all()
        assert (residual - correction).norm() <= residual.norm()


def test_what_16_bits_would_make_worse_is_left_out():
    """One loud input and one residual far below what the product of 16-bit numbers resolves around it."""
    residual = torch.tensor([[1e-30, 0.0], [0.0, 1e-32]])
    correction = fit_low_rank(residual, 2)
    assert (residual - correction.product()).norm() <= residual.norm()


def matrix_and_plan(seed, **changes):
    matrix = torch.randn(16, 40, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16).float()
    plan = TensorPlan(name="w", shape=(16, 40), bits=2, group_size=8, symmetric=True, clip="mse", **changes)
    return matrix, plan


@given(st.integers(0, 100), st.sampled_from([0.0, 5.0]))
def test_matrices_are_corrected_by_what_is_known_of_their_inputs(seed, keep):
    matrix, plan = matrix_and_plan(seed, keep=keep)
    squares = torch.logspace(-2, 2, 40)
    known = TensorCalibration(squares[None], effective_kurtosis=0.0)

    def loss(rank, calibration):
        ranked_plan = plan.model_copy(update={"rank": rank})
        return error(quantize_matrix(matrix, ranked_plan, calibration).dequantize(ranked_plan) - matrix, squares.diag())

    assert loss(4, known) < loss(4, None) < loss(0, known)
    corrected = plan.model_copy(update={"rank": 4})
    if keep:
        quantized = quantize_matrix(matrix, corrected)
        chosen = matrix.abs().flatten().topk(plan.kept).indices
        assert torch.equal(quantized.dequantize(corrected).flatten()[chosen], matrix.flatten()[chosen])


@given(st.integers(0, 100))
def test_tables_are_refitted_around_the_correction(seed):
    matrix, plan = matrix_and_plan(seed, rank=4)
    _, _, moments = case(seed, "full", (16, 40))
    quantized = quantize_matrix(matrix, plan)
    tables = refit_scales(matrix, quantized, plan, moments)[None]
    refitted = type(quantized)(quantized.codes, quantized.grid, None, tables, quantized.low_rank)
    before = error(quantized.dequantize(plan) - matrix, moments)
    assert error(refitted.dequantize(plan, 0) - matrix, moments) <= before * (1 + 1e-4)


def test_size_by_hand():
    plan = TensorPlan(name="w", shape=(64, 128), bits=4, group_size=64, symmetric=True, rank=8)
    assert plan.stored_bits == 64 * 128 * 4 + 64 * 2 * 16 + 8 * (64 + 128) * 16
