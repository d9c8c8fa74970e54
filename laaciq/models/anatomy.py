"""The parts of a transformers model: blocks and linear layers, found and not tabulated by architecture.

A *block* is an element of an outermost `ModuleList` whose elements hold linear layers. A *linear layer* is an `nn.Linear` or GPT-2's
`Conv1D`, whose weight is stored transposed; both are seen as a matrix of shape (outputs, inputs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from laaciq.errors import BrokenModel

Role = Literal["block", "embedding", "head", "other"]
Component = Literal["attention", "feed-forward"]


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer inside a block. `name` is its weight tensor's, as in the checkpoint; `block` counts from 0.

    It belongs to `attention` if it lies within a module whose class says so, else to the feed-forward part.
    """

    name: str
    module: nn.Module
    block: int
    transposed: bool
    component: Component

    @property
    def matrix(self) -> torch.Tensor:
        """The weight as (outputs, inputs); a view of the parameter."""
        weight = self.module.get_parameter("weight")
        return weight.t() if self.transposed else weight

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.matrix.shape)  # type: ignore[return-value]


@dataclass(frozen=True)
class TensorPart:
    """One parameter of a model, tied ones counted once, and what it is part of."""

    name: str
    shape: tuple[int, ...]
    role: Role


@dataclass(frozen=True)
class Anatomy:
    block_names: tuple[str, ...]
    linears: tuple[LinearLayer, ...]
    tensors: tuple[TensorPart, ...]

    def parameter_count(self, role: Role | None = None) -> int:
        return sum(_count(part.shape) for part in self.tensors if role is None or part.role == role)


def dissect(model: nn.Module) -> Anatomy:
    """Find blocks, linear layers and the role of every parameter."""
    blocks = _find_blocks(model)
    linears = [
        LinearLayer(f"{block_path}.{path}.weight", module, index, isinstance(module, Conv1D), _component(block, path))
        for index, (block_path, block) in enumerate(blocks)
        for path, module in block.named_modules()
        if is_linear(module)
    ]
    if not linears:
        raise BrokenModel(
            f"{type(model).__name__} has no linear layers in repeated blocks: there is nothing to quantize"
        )
    in_blocks = {id(linear.module.get_parameter("weight")) for linear in linears}
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    head = getattr(model, "get_output_embeddings", lambda: None)()
    head_weight = id(head.weight) if head is not None and hasattr(head, "weight") else None

    def role(parameter: nn.Parameter) -> Role:
        if id(parameter) in in_blocks:
            return "block"
        if id(parameter) in embeddings:
            return "embedding"
        return "head" if id(parameter) == head_weight else "other"

    tensors = [TensorPart(name, tuple(p.shape), role(p)) for name, p in model.named_parameters()]
    return Anatomy(tuple(path for path, _ in blocks), tuple(linears), tuple(tensors))


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


def _find_blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    found: list[tuple[str, nn.Module]] = []
    for path, module in model.named_modules():
        inside_another = any(path.startswith(f"{block}.") for block, _ in found)
        if not isinstance(module, nn.ModuleList) or inside_another:
            continue
        if all(not is_linear(child) and any(map(is_linear, child.modules())) for child in module):
            found += [(f"{path}.{index}", child) for index, child in enumerate(module)]
    return found


def _component(block: nn.Module, path: str) -> Component:
    parts = path.split(".")
    around = (block.get_submodule(".".join(parts[:depth])) for depth in range(1, len(parts)))
    return "attention" if any("attention" in type(module).__name__.lower() for module in around) else "feed-forward"


def _count(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
