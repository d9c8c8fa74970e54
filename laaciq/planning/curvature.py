"""Curvature of the loss: what an error in each weight costs each language.

To second order, an error Δw raises a passage's loss by ½·(∇NLL·Δw)² on average, where ∇NLL is the gradient of the whole passage (Fisher
information for the Hessian). Rounding errors of different weights are nearly independent, so only squares remain: ½·Σ E[(∂NLL/∂w)²]·Δw²,
divided by the passage's tokens. Gradients are those of whole passages, because errors at its tokens add up before they are squared.
Treating tokens as independent would overestimate value projections by far.

The gradient of a linear layer is gᵀx, with x what it reads and g the gradient of what it returns. It is squared and pooled at once, so that
gradients of one layer at a time are in memory. Sequences that run together are rows of x and of g: each row has a gradient of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import pad

from laaciq.corpus import Texts
from laaciq.models import LanguageModel, LinearLayer
from laaciq.options import MeasureOptions
from laaciq.planning.curvature_batches import (
    MOST_BYTES,
    POOLED,
    are_separable,
    padded_tokens,
    sequence_batches,
    usual_tokens,
)
from laaciq.scoring.likelihood import target_losses
from laaciq.scoring.sequences import ScoredPassage, ScoredSequence, prepare_all


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
    most_tokens: int | None = None,
    advance: Callable[[int], None] = lambda passages: None,
) -> Curvature:
    """The curvature for the named matrices of the model, linear layers or token matrices, from the gradients of every passage. Batches
    have at most this many padded tokens, by default one sequence on a CPU.
    """
    shapes = {layer.name: layer.shape for layer in model.anatomy.all_matrices if layer.name in names}
    weights = sum(outputs * inputs for outputs, inputs in shapes.values())
    pooled = POOLED if 4 * weights // POOLED * len(texts.languages) <= MOST_BYTES else None
    by_language = [prepare_all(model, passages, options) for passages in texts.by_language.values()]
    passages = [passage for prepared in by_language for passage in prepared]
    languages = [number for number, prepared in enumerate(by_language) for _ in prepared]
    most = most_tokens or usual_tokens(model, len(by_language))
    finished = _Finished(passages, advance)
    squares = _GradientSquares(model, shapes, pooled, len(by_language))
    with squares.recorded():
        for owners, sequences in sequence_batches(passages, most if are_separable(model.anatomy, names) else 1):
            squares.add([languages[owner] for owner in owners], sequences)
            finished.see(owners)
    tokens = [sum(passage.scored_tokens for passage in prepared) for prepared in by_language]
    return Curvature(texts.languages, pooled, squares.halved_means(tokens))


def pool(values: torch.Tensor, width: int) -> torch.Tensor:
    """Sums over `width` inputs at a time, (outputs, pools)."""
    return pad(values, (0, -values.shape[1] % width)).reshape(len(values), -1, width).sum(-1)


def _pools(shape: tuple[int, int], pooled: int | None) -> tuple[int, int]:
    return shape[0], -(-shape[1] // (pooled or shape[1]))


class _Finished:
    """Counts passages all of whose sequences have been seen: a passage may be in several batches."""

    def __init__(self, passages: list[ScoredPassage], advance: Callable[[int], None]) -> None:
        self._left = [sum(bool(sequence.targets) for sequence in passage.sequences) for passage in passages]
        self._advance = advance
        if unscored := self._left.count(0):
            advance(unscored)

    def see(self, owners: list[int]) -> None:
        """Another sequence of each of these passages, or several."""
        for owner in owners:
            self._left[owner] -= 1
        if count := sum(not self._left[owner] for owner in set(owners)):
            self._advance(count)


@dataclass
class _GradientSquares:
    """Adds up pooled squares of gradients by language, batch by batch."""

    model: LanguageModel
    shapes: dict[str, tuple[int, int]]
    pooled: int | None
    languages: int
    # The language of each row of the present batch.
    _rows: list[int] = field(default_factory=list, init=False)
    # Its tokens with padding, an encoder's and a decoder's.
    _flat: set[int] = field(default_factory=set, init=False)
    _sums: dict[str, torch.Tensor] = field(default_factory=dict, init=False)
    _calls: Counter[str] = field(default_factory=Counter, init=False)
    # By layer and call: the gradient of what it returns, and what it reads.
    _seen: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = field(default_factory=dict, init=False)
    _embedded: list[torch.Tensor] = field(default_factory=list, init=False)
    _forward: bool = field(default=False, init=False)
    # True if a layer has read something else than the rows of a batch.
    _mixed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        for name, shape in self.shapes.items():
            pools = _pools(shape, self.pooled)
            self._sums[name] = torch.zeros(self.languages, *pools, device=self.model.device)

    def halved_means(self, tokens: list[int]) -> dict[str, torch.Tensor]:
        """Half the sums per token of each language. They are used up."""
        sums, self._sums = self._sums, {}
        for by_language in sums.values():
            for language, count in enumerate(tokens):
                by_language[language].div_(2 * max(count, 1))
        return sums

    def add(self, languages: list[int], sequences: list[ScoredSequence]) -> None:
        """Add the sequences, which run together if each has a row of its own in every layer."""
        if len(sequences) > 1 and self._add_together(languages, sequences):
            return
        for language, sequence in zip(languages, sequences, strict=True):
            self._pass_back(self._loss([language], [sequence]))

    def _add_together(self, languages: list[int], sequences: list[ScoredSequence]) -> bool:
        """False if gradients cannot be told apart, and nothing is added."""
        if self._mixed:
            return False
        loss = self._loss(languages, sequences)
        if not self._mixed:
            self._pass_back(loss)
        return not self._mixed

    def _loss(self, languages: list[int], sequences: list[ScoredSequence]) -> torch.Tensor:
        self._rows, self._flat = languages, padded_tokens(sequences)
        self._calls.clear()
        self._seen.clear()
        self._embedded.clear()
        self._forward = True
        loss = target_losses(self.model, sequences).sum()
        self._forward = False
        return loss

    def _pass_back(self, loss: torch.Tensor) -> None:
        tables = {name: self.model.module.get_parameter(name) for name in self._tables}
        leaves = [*tables.values(), *self._embedded]
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        for name, gradient in zip(tables, gradients, strict=False):
            if gradient is not None:
                # Where there are tables, `are_separable` is false and a batch has one row.
                self._square(name, self._rows[0], gradient)

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
            self._mixed |= len(self._rows) > 1 and not self._has_rows(entering)

            def see(gradient: torch.Tensor) -> None:
                self._seen.setdefault(name, []).append((gradient, entering))
                self._calls[name] -= 1
                if not self._calls[name]:
                    self._square_rows(name, self._seen.pop(name))

            output.register_hook(see)

        return hook

    def _has_rows(self, entering: torch.Tensor) -> bool:
        """True if these are the tokens of the batch, row by row. Some layers, such as OPT's, read them as one long row."""
        return len(entering) in self._flat if entering.ndim == 2 else len(entering) == len(self._rows)

    def _square_rows(self, name: str, calls: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for row, language in enumerate(self._rows):
            products = (self._row(gradient, row).t() @ self._row(entering, row) for gradient, entering in calls)
            # A layer that is called twice has one gradient, the sum.
            self._square(name, language, reduce(torch.add, products))

    def _row(self, tensor: torch.Tensor, row: int) -> torch.Tensor:
        """The tokens of one sequence, (tokens, width)."""
        return tensor.reshape(len(self._rows), -1, tensor.shape[-1])[row]

    @torch.no_grad()
    def _square(self, name: str, language: int, gradient: torch.Tensor) -> None:
        square = gradient.float().square()
        self._sums[name][language].add_(pool(square, self.pooled or square.shape[1]))
