"""Effective weights w ⊙ a(λ): the weights scaled by a language's inputs.

With a_j = √E[x_j²] for input j, the moments of w_ij·a_j follow from the column sums Σ_i w_ij^k alone. So each language costs a few dot
products, and the weights are read once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from laaciq.profiling.results import EffectiveWeights


@dataclass(frozen=True)
class ColumnSums:
    """Σ_i w_ij^k for k = 1…4, shape (4, inputs), in float64; `rows` is the number of outputs."""

    sums: np.ndarray
    rows: int

    @classmethod
    def of(cls, matrix: torch.Tensor) -> ColumnSums:
        sums = torch.zeros(4, matrix.shape[1], dtype=torch.float64, device=matrix.device)
        # By rows, so that the float64 copy stays small beside the matrix.
        for part in matrix.split(max(1, 2**20 // max(1, matrix.shape[1]))):
            power = wide = part.double()
            for k in range(4):
                sums[k] += power.sum(0)
                power = power * wide
        return cls(sums.cpu().numpy(), matrix.shape[0])

    def effective(self, input_mean_squares: np.ndarray) -> EffectiveWeights:
        """σ and κ of w ⊙ a for a = √E[x²]."""
        scale = np.sqrt(input_mean_squares)
        count = self.rows * len(scale)
        first, second, third, fourth = ((self.sums[k] @ scale ** (k + 1)) / count for k in range(4))
        variance = second - first**2
        central = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
        if variance <= 0:
            return EffectiveWeights(sigma=0.0, kurtosis=0.0)
        return EffectiveWeights(sigma=float(np.sqrt(variance)), kurtosis=float(central / variance**2 - 3))
