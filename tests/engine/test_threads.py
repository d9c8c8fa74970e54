"""The same codes for any number of threads: the factorizations behind them give the same bits."""

from __future__ import annotations

import pytest
import torch

from laaciq.engine.threads import one_thread
from laaciq.quantization.compensation import compensated_weights
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.low_rank import fit_low_rank

# LAPACK splits matrices of this size between two threads; without `one_thread` all three results differ in their last bits.
_INPUTS, _OUTPUTS, _TOKENS = 512, 64, 600


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_one_thread_restores_the_number_of_threads(threads):
    threads(2)
    with pytest.raises(ZeroDivisionError), one_thread():
        assert torch.get_num_threads() == 1
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == 2


def test_factorizations_give_the_same_bits_for_any_number_of_threads(threads):
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(_TOKENS, _INPUTS, generator=random)
    noisy = inputs + 0.1 * torch.randn(_TOKENS, _INPUTS, generator=random)
    weights = torch.randn(_OUTPUTS, _INPUTS, generator=random)
    moments, crossed = noisy.T @ noisy / _TOKENS, inputs.T @ noisy / _TOKENS

    def results() -> list[torch.Tensor]:
        correction = fit_low_rank(weights, 4, moments)
        return [
            Hessian(moments).inverse_factor,
            compensated_weights(weights, Hessian(moments), crossed),
            correction.left,
            correction.right,
        ]

    threads(1)
    alone = results()
    threads(2)
    assert all(map(torch.equal, alone, results()))
