"""Curvature of the loss: what an error in each weight costs each language.

To second order, an error Δw raises a passage's loss by ½·(∇NLL·Δw)² on average, where ∇NLL is the gradient of the whole passage (Fisher
information for the Hessian). Rounding errors of different weights are nearly independent, so only squares remain: ½·Σ E[(∂NLL/∂w)²]·Δw²,
divided by the passage's tokens. Gradients are those of whole passages, because errors at its tokens add up before they are squared.
Treating tokens as independent would overestimate value projections by far.

The gradient of a linear layer is gᵀx, with x what it reads and g the gradient of what it returns. It is squared and pooled at once, so that
gradients of one layer at a time are in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import pad

from laaciq.corpus import Texts
from laaciq.models import LanguageModel, LinearLayer
from laaciq.options import MeasureOptions
from laaciq.scoring.likelihood import target_losses
from laaciq.scoring.sequences import ScoredSequence, prepare_all

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
    names: Collection[str],
    texts: Texts,
    options: MeasureOptions,
    *,
    advance: Callable[[int], None] = lambda passages: None,
) -> Curvature:
    """The curvature for the named matrices of the model, linear layers or token matrices, from the gradients of every passage."""
    shapes = {layer.name: layer.shape for layer in model.anatomy.all_matrices if layer.name in names}
    weights = sum(outputs * inputs for outputs, inputs in shapes.values())
    pooled = POOLED if 4 * weights // POOLED * len(texts.languages) <= MOST_BYTES else None
    sums_by_language: dict[str, list[torch.Tensor]] = {name: [] for name in shapes}
    squares = _GradientSquares(model, shapes, pooled)
    with squares.recorded():
        for passages in texts.by_language.values():
            tokens = 0
            for passage in prepare_all(model, passages, options):
                for sequence in (s for s in passage.sequences if s.targets):
                    squares.add(sequence)
                    tokens += len(sequence.targets)
                advance(1)
            for name, total in squares.take().items():
                sums_by_language[name].append((total / (2 * max(tokens, 1))).expand(_pools(shapes[name], pooled)))
    return Curvature(
        texts.languages, pooled, {name: torch.stack(by_language) for name, by_language in sums_by_language.items()}
    )


def pool(values: torch.Tensor, width: int) -> torch.Tensor:
    """Sums over `width` inputs at a time, (outputs, pools)."""
    return pad(values, (0, -values.shape[1] % width)).reshape(len(values), -1, width).sum(-1)


def _pools(shape: tuple[int, int], pooled: int | None) -> tuple[int, int]:
    return shape[0], -(-shape[1] // (pooled or shape[1]))


@dataclass
class _GradientSquares:
    """Adds up pooled squares of gradients, sequence by sequence."""

    model: LanguageModel
    shapes: dict[str, tuple[int, int]]
    pooled: int | None
    _sums: dict[str, torch.Tensor] = field(default_factory=dict, init=False)
    _calls: Counter[str] = field(default_factory=Counter, init=False)
    _gradients: dict[str, torch.Tensor] = field(default_factory=dict, init=False)
    _embedded: list[torch.Tensor] = field(default_factory=list, init=False)
    _forward: bool = field(default=False, init=False)

    def take(self) -> dict[str, torch.Tensor]:
        """The sums since the last call; zero for a matrix that no loss depends on."""
        sums, self._sums = self._sums, {}
        return {name: sums.get(name, torch.zeros((), device=self.model.device)) for name in self.shapes}

    def add(self, sequence: ScoredSequence) -> None:
        self._calls.clear()
        self._gradients.clear()
        self._embedded.clear()
        self._forward = True
        loss = target_losses(self.model, [sequence]).sum()
        self._forward = False
        tables = {name: self.model.module.get_parameter(name) for name in self._tables}
        leaves = [*tables.values(), *self._embedded]
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        for name, gradient in zip(tables, gradients, strict=False):
            if gradient is not None:
                self._square(name, gradient)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Context manager: layers and embeddings are watched, and only token matrices have gradients of their own."""
        module = self.model.module
        linears = [linear for linear in self.model.anatomy.linears if linear.name in self.shapes]
        handles: list[Any] = [linear.module.register_forward_hook(self._watch(linear)) for linear in linears]
        tables = [part for part in module.modules() if isinstance(part, nn.Embedding)]
        handles += [table.register_forward_hook(self._start_gradients) for table in tables]
        chosen = [module.get_parameter(name) for name in self._tables]
        try:
            for parameter in chosen:
                parameter.requires_grad_(True)
            with torch.enable_grad():
                yield
        finally:
            for parameter in chosen:
                parameter.requires_grad_(False)
            for handle in handles:
                handle.remove()

    @property
    def _tables(self) -> list[str]:
        return [matrix.name for matrix in self.model.anatomy.token_matrices if matrix.name in self.shapes]

    def _start_gradients(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        """Without gradients of weights, it is what enters the first block that has one."""
        if not output.requires_grad:
            output.requires_grad_(True)
        self._embedded.append(output)

    def _watch(self, linear: LinearLayer) -> Callable[..., None]:
        name = linear.name

        def hook(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            # Offloaded blocks run again in the backward pass; the outputs of the first run have gradients.
            if not self._forward:
                return
            entering = inputs[0].detach()
            self._calls[name] += 1

            def see(gradient: torch.Tensor) -> None:
                rows = entering.reshape(-1, entering.shape[-1])
                added = gradient.reshape(len(rows), -1).t() @ rows
                # A layer that is called twice has one gradient, the sum.
                self._gradients[name] = self._gradients[name] + added if name in self._gradients else added
                self._calls[name] -= 1
                if not self._calls[name]:
                    self._square(name, self._gradients.pop(name))

            output.register_hook(see)

        return hook

    @torch.no_grad()
    def _square(self, name: str, gradient: torch.Tensor) -> None:
        square = gradient.float().square()
        pooled = pool(square, self.pooled or square.shape[1])
        self._sums[name] = self._sums[name] + pooled if name in self._sums else pooled
