"""Curvature of the loss: what an error in each weight costs each language.

To second order, an error Δw raises a passage's loss by ½·(∇NLL·Δw)² on average, where ∇NLL is the gradient of the whole passage (Fisher
information for the Hessian). Rounding errors of different weights are nearly independent, so only squares remain: ½·Σ E[(∂NLL/∂w)²]·Δw²,
divided by the passage's tokens. Gradients are those of whole passages, because errors at its tokens add up before they are squared.
Treating tokens as independent would overestimate value projections by far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import pad

from laaciq.corpus import Texts
from laaciq.models import LanguageModel
from laaciq.options import MeasureOptions
from laaciq.scoring.likelihood import target_losses
from laaciq.scoring.sequences import prepare_all

# Inputs of a row per pool: they mostly share a scale, and so a mean squared error.
POOLED = 64
# If pools for all languages would exceed this, whole rows are pooled.
MOST_BYTES = 2**31


@dataclass(frozen=True)
class Curvature:
    """For each matrix by name: half the mean squared gradient per token, summed over pools of inputs, (languages, outputs, pools)."""

    languages: list[str]
    pooled: int | None
    by_tensor: dict[str, torch.Tensor]

    def losses(self, name: str, errors: torch.Tensor, step: int = 1) -> np.ndarray:
        """Expected ΔNLL per token by language for squared errors (outputs, inputs): of all outputs, or of one in `step`, which stand for
        all.
        """
        inputs = errors.shape[1]
        width = self.pooled or inputs
        counts = pool(torch.ones(1, inputs, device=errors.device), width)
        whole = self.by_tensor[name]
        losses = torch.einsum("lop,op->l", whole[:, ::step], pool(errors, width) / counts)
        return (losses * (whole.shape[1] / len(errors))).double().cpu().numpy()


def measure_curvature(
    model: LanguageModel,
    matrices: dict[str, torch.Tensor],
    texts: Texts,
    options: MeasureOptions,
    *,
    advance: Callable[[int], None] = lambda passages: None,
) -> Curvature:
    """The curvature for the named `matrices`, (outputs, inputs), from the gradients of every passage: parameters of the model or their
    transposes.
    """
    weights = sum(matrix.numel() for matrix in matrices.values())
    pooled = POOLED if 4 * weights // POOLED * len(texts.languages) <= MOST_BYTES else None
    sums_by_language: dict[str, list[torch.Tensor]] = {name: [] for name in matrices}
    with _differentiable(model, matrices) as parameters:
        for passages in texts.by_language.values():
            sums = {name: torch.zeros((), device=model.device) for name in matrices}
            tokens = 0
            for passage in prepare_all(model, passages, options):
                for sequence in (s for s in passage.sequences if s.targets):
                    loss = target_losses(model, [sequence]).sum()
                    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
                    for name, gradient in zip(parameters, gradients, strict=True):
                        if gradient is not None:
                            square = gradient.float().square()
                            square = square if square.shape == matrices[name].shape else square.t()
                            sums[name] = sums[name] + pool(square, pooled or square.shape[1])
                    tokens += len(sequence.targets)
                advance(1)
            for name, total in sums.items():
                sums_by_language[name].append((total / (2 * max(tokens, 1))).expand(_pools(matrices[name], pooled)))
    return Curvature(
        texts.languages, pooled, {name: torch.stack(by_language) for name, by_language in sums_by_language.items()}
    )


def pool(values: torch.Tensor, width: int) -> torch.Tensor:
    """Sums over `width` inputs at a time, (outputs, pools)."""
    return pad(values, (0, -values.shape[1] % width)).reshape(len(values), -1, width).sum(-1)


def _pools(matrix: torch.Tensor, pooled: int | None) -> tuple[int, int]:
    return len(matrix), -(-matrix.shape[1] // (pooled or matrix.shape[1]))


@contextmanager
def _differentiable(model: LanguageModel, matrices: dict[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """Context manager: only the parameters behind the matrices have gradients. Yields them."""
    stored = {parameter.data_ptr(): parameter for parameter in model.module.parameters()}
    chosen = {name: stored[matrix.data_ptr()] for name, matrix in matrices.items()}
    before = {parameter: parameter.requires_grad for parameter in stored.values()}
    try:
        for parameter in stored.values():
            parameter.requires_grad_(False)
        for parameter in chosen.values():
            parameter.requires_grad_(True)
        with torch.enable_grad():
            yield chosen
    finally:
        for parameter, wanted in before.items():
            parameter.requires_grad_(wanted)
