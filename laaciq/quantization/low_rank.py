"""A low-rank correction: W ≈ Ŵ + A·B, where Ŵ are the dequantized weights and A, B are in 16 bits.

The loss of the outputs is ‖(W − Ŵ − A·B)·S‖² with S·Sᵀ = H = E[xxᵀ] of the layer's inputs. By Eckart and Young the best A·B·S of a rank is
the truncated SVD U·Σ·Vᵀ of (W − Ŵ)·S, so A = U·Σ and B = Vᵀ·S⁻¹. (LQER, Zhang et al. 2024, with a diagonal S; CALDERA, Saha et al. 2024.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from laaciq.engine.threads import one_thread
from laaciq.quantization.kept import KeptWeights, to_16bit

# Share of the mean second moment that is added to the diagonal; increased until H has a root in floating point.
_DAMPING = 1e-6
# If the smaller side of a matrix exceeds this, subspace iteration computes the leading singular vectors: the spectrum of rounding errors is
# flat, so neighbouring directions are equally good.
_EXACT = 2**11
_OVERSAMPLED, _ITERATIONS = 16, 8


@dataclass(frozen=True)
class LowRank:
    """A, (outputs, rank), and B, (rank, inputs), in 16 bits."""

    left: torch.Tensor
    right: torch.Tensor

    def product(self) -> torch.Tensor:
        return self.left.float() @ self.right.float()


def fit_low_rank(
    residual: torch.Tensor, rank: int, moments: torch.Tensor | None = None, kept: KeptWeights | None = None
) -> LowRank:
    """The best correction of `residual` = W − Ŵ, or zeros if the correction, rounded to 16 bits, does not help.

    `moments` is H, or its diagonal, or None for the identity. Kept weights have no error.
    """
    residual = residual.float()
    root = None if moments is None else _root(moments)
    left, right = _leading(_times(residual, root), rank)
    right = _divided(right, root)
    # Balanced, so that neither leaves the range of 16 bits before the other.
    balance = (right.norm(dim=1) / left.norm(dim=0).clamp_min(1e-30)).sqrt()
    safe = balance.where(balance > 0, 1.0)
    correction = LowRank(to_16bit(left * safe), to_16bit(right / safe[:, None]))
    rest = residual - correction.product()
    if kept is not None:
        residual, rest = kept.put_into(residual, 0.0), kept.put_into(rest, 0.0)
    if _times(rest, root).norm() <= _times(residual, root).norm():
        return correction
    return LowRank(torch.zeros_like(correction.left), torch.zeros_like(correction.right))


@one_thread()
def _root(moments: torch.Tensor) -> torch.Tensor:
    """S with S·Sᵀ = H + δI for the smallest δ that works: a vector for a diagonal H, else the Cholesky factor."""
    wide = moments.double()
    if wide.ndim == 1:
        return (wide + _DAMPING * wide.mean().clamp_min(1e-30)).sqrt().float()
    identity = torch.eye(len(wide), dtype=wide.dtype, device=wide.device)
    damping = _DAMPING * wide.diagonal().mean().clamp_min(1e-30)
    while True:
        lower, failed = torch.linalg.cholesky_ex(wide + damping * identity)
        if not failed:
            return lower.float()
        damping = 10 * damping


def _times(matrix: torch.Tensor, root: torch.Tensor | None) -> torch.Tensor:
    if root is None:
        return matrix
    return matrix * root if root.ndim == 1 else matrix @ root


def _divided(matrix: torch.Tensor, root: torch.Tensor | None) -> torch.Tensor:
    if root is None:
        return matrix
    return matrix / root if root.ndim == 1 else torch.linalg.solve_triangular(root, matrix, upper=False, left=False)


@one_thread()
def _leading(matrix: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """U·Σ and Vᵀ for the leading singular values."""
    if min(matrix.shape) <= max(_EXACT, rank + _OVERSAMPLED):
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        return left[:, :rank] * values[:rank], right[:rank]
    random = torch.Generator().manual_seed(0)
    basis = torch.randn(matrix.shape[1], rank + _OVERSAMPLED, generator=random).to(matrix.device)
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(matrix.T @ torch.linalg.qr(matrix @ basis).Q).Q
    left, values, right = torch.linalg.svd(matrix @ basis, full_matrices=False)
    return left[:, :rank] * values[:rank], right[:rank] @ basis.T
