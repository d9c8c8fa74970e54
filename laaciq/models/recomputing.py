"""Blocks that run again in the backward pass: what is inside them is not kept for it, only what enters them.

Two ways. torch's own serves any block, also one whose outputs are watched for their gradients; it calls Python twice for every tensor that
an operation saves. The other way runs the block without gradients first. That counts where starting operations takes longer than computing
them: in tuning on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint


class Recomputing(Protocol):
    def __call__(self, block: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """`block(*arguments, **options)`, which runs again for its gradients."""


def recorded_first(block: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The first run records all operations, and gradients pass through it; `Recomputing`."""
    return checkpoint(block, *arguments, use_reentrant=False, preserve_rng_state=False, **options)


def recorded_last(block: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Only the second run records operations; `Recomputing`. Gradients are the same to the last digit, unless several blocks read the same
    tensors: the order of sums over these is kept by `recorded_first` alone, which also serves if more than the first argument has gradients.
    """
    hidden, *others = arguments or (None,)
    leaves, _ = tree_flatten((others, options))
    if hidden is None or any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
        return recorded_first(block, arguments, options)
    structure: Any = None

    def run(hidden: torch.Tensor) -> tuple[Any, ...]:
        nonlocal structure
        returned, structure = tree_flatten(block(hidden, *others, **options))
        return tuple(returned)

    # Parameters that the block reads may have gradients where what enters it has none.
    always = torch.empty(0, requires_grad=True)
    return tree_unflatten(list(_RunTwice.apply(always, run, hidden)), structure)


class _RunTwice(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, always: torch.Tensor, run: Callable[..., tuple[Any, ...]], hidden: torch.Tensor
    ) -> tuple[Any, ...]:
        ctx.run = run
        ctx.save_for_backward(hidden)
        return run(hidden)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        (entering,) = ctx.saved_tensors
        hidden = entering.detach().requires_grad_(ctx.needs_input_grad[2])
        with torch.enable_grad():
            returned = ctx.run(hidden)
        ends = [
            (tensor, gradient)
            for tensor, gradient in zip(returned, gradients, strict=True)
            if gradient is not None and isinstance(tensor, torch.Tensor) and tensor.requires_grad
        ]
        torch.autograd.backward([tensor for tensor, _ in ends], [gradient for _, gradient in ends])
        return None, None, hidden.grad
