"""Every kernel rounds as the specification does, for any shape, grid and number of threads."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laaciq.options import BITS
from laaciq.quantization import rounding_kernels
from laaciq.quantization.compensation import refine_codes
from laaciq.quantization.rounding_kernels import BLOCK, kernels_for, numba_cpu, plain
from laaciq.quantization.second_order import round_second_order
from tests.quantization.rounding_cases import compare, halves, make_stack


@given(
    st.integers(0, 2**16),
    st.integers(1, 150),
    st.integers(1, BLOCK),
    st.sampled_from(BITS),
    st.sampled_from([16, 64, "channel", "tensor"]),
    st.booleans(),
    st.sampled_from([0.0, 3.0]),
)
def test_the_cpu_kernel_is_the_specification(seed, outputs, inputs, bits, group_size, symmetric, keep):
    compared = compare(numba_cpu, *make_stack(seed, outputs, inputs, bits, group_size, symmetric, keep))
    # A weight half-way between two codes may go either way, and all later ones of its output with it: one of a thousand outputs, if that.
    assert (~compared.same_codes).sum() <= 1 + outputs // 50
    assert (~compared.same_moves).sum() <= 1 + outputs // 50
    # Errors grow along the block by what is rounded differently.
    assert compared.difference < 1e-4


@pytest.mark.parametrize("kernels", [plain, numba_cpu], ids=["plain", "numba"])
def test_half_is_rounded_to_even(kernels):
    assert torch.equal(*halves(kernels))


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_triton_kernel_is_the_specification():
    """On a GPU if there is one, else in Triton's interpreter, which must be chosen before Triton is imported."""
    cuda = torch.cuda.is_available()
    words = [sys.executable, "-m", "tests.quantization.rounding_cases", "cuda" if cuda else "cpu"]
    settings = {"TRITON_INTERPRET": "0" if cuda else "1"}
    child = subprocess.run(words, check=False, env=os.environ | settings, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


@pytest.mark.parametrize("keep", [0.0, 2.0])
def test_a_matrix_of_several_blocks(keep):
    """The same codes, and where a tie was broken otherwise an error as small."""
    stack, hessian = make_stack(1, 70, 2 * BLOCK + 44, 3, 64, False, keep)
    results = []
    for kernels in (None, plain):
        rounded = round_second_order(stack, hessian, kernels)
        results.append((rounded, refine_codes(stack, rounded, hessian, kernels)))
    for fast, slow in zip(*results, strict=True):
        assert (fast != slow).any(0).sum() <= 2
        torch.testing.assert_close(error(fast, stack, hessian), error(slow, stack, hessian), rtol=1e-3, atol=0)
    first, refined = (error(codes, stack, hessian) for codes in results[0])
    assert (refined <= first * (1 + 1e-4)).all() and refined.sum() < first.sum()


def error(codes, stack, hessian):
    values = stack.grids.by_input().decode(codes)
    if stack.kept is not None:
        values = values.where(stack.kept.isnan(), stack.kept)
    difference = (values - stack.weights).double()
    return torch.einsum("io,ij,jo->o", difference, hessian.damped.double(), difference)


def test_any_number_of_threads_gives_the_same_bits(monkeypatch):
    monkeypatch.setattr(numba_cpu, "_THREAD_WEIGHTS", 1)
    stack, hessian = make_stack(2, 300, 100, 4, 32, False, 1.0)
    ordered = stack.at(hessian.order)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        rounded = numba_cpu.round_block(ordered.weights, hessian.inverse_factor, ordered.grids, ordered.kept)
        moves = numba_cpu.refine_block(stack.weights, stack.weights, hessian.damped, stack.grids, stack.kept)
        results.append((*rounded, moves))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_without_triton_the_specification_runs_and_a_warning_says_so_once(monkeypatch, recwarn):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "laaciq.quantization.rounding_kernels.triton_cuda", raising=False)
    monkeypatch.delattr(rounding_kernels, "triton_cuda", raising=False)
    rounding_kernels._cuda_kernels.cache_clear()
    assert [kernels_for(torch.device("cuda")) for _ in range(2)] == [plain, plain]
    (warning,) = recwarn
    assert "without Triton" in str(warning.message)
    rounding_kernels._cuda_kernels.cache_clear()
