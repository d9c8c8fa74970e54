"""The parts of a transformers model: blocks, linear layers and token matrices, detected without a table of architectures.

A *block* is an element of an outermost `ModuleList` whose elements hold linear layers, within the language model if there are other parts. A
*linear layer* is an `nn.Linear` or GPT-2's `Conv1D`, whose weight is stored transposed; both are presented as a matrix of shape (outputs,
inputs).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from laaciq.errors import BrokenModel
from laaciq.models.experts import SplitExperts
from laaciq.models.left_alone import is_router, language_part, part_beside, why_left_alone

Role = Literal["block", "embedding", "head", "other"]
Component = Literal["attention", "feed-forward"]


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer inside a block. `name` is its weight tensor's, as in the checkpoint; `block` counts from 0.

    It belongs to `attention` if it lies within a module whose class name contains that word, else to the feed-forward part. `expert` is its
    number, and `experts` the path of the module that holds them, if the layer is part of one. It reads a `share` of all tokens: an expert
    those that the router sends it, on average over experts.
    """

    name: str
    module: nn.Module
    block: int
    transposed: bool
    component: Component
    experts: str | None = None
    expert: int | None = None
    share: float = 1.0

    @property
    def matrix(self) -> torch.Tensor:
        """The weight as (outputs, inputs); a view of the parameter."""
        weight = self.module.get_parameter("weight")
        return weight.t() if self.transposed else weight

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.matrix.shape)  # type: ignore[return-value]


@dataclass(frozen=True)
class TokenMatrix:
    """A matrix outside the blocks with a row per token: an embedding table, the head, or both where they are tied.

    `name` is its tensor's, `used_by` names all modules that share it, `obstacle` is the reason why it cannot be quantized, if there is one.
    """

    name: str
    module: nn.Module
    used_by: tuple[str, ...]
    obstacle: str | None

    @property
    def matrix(self) -> torch.Tensor:
        return self.module.get_parameter("weight")

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.matrix.shape)  # type: ignore[return-value]


@dataclass(frozen=True)
class TensorPart:
    """One parameter of a model, tied ones counted once, and what it is part of. `block` is None outside the blocks. `reason` says why it is
    not quantized; None if it can be, as a linear layer of a block or a token matrix.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    block: int | None
    reason: str | None

    @property
    def count(self) -> int:
        return int(torch.Size(self.shape).numel())


@dataclass(frozen=True)
class Anatomy:
    """All parameters of a model are in `tensors`: those of `linears`, those of `token_matrices`, and those that are left alone. A checkpoint
    also stores `buffer_bits`, of constants that are no parameters.
    """

    block_names: tuple[str, ...]
    linears: tuple[LinearLayer, ...]
    tensors: tuple[TensorPart, ...]
    token_matrices: tuple[TokenMatrix, ...]
    buffer_bits: int = 0

    @property
    def all_matrices(self) -> tuple[LinearLayer | TokenMatrix, ...]:
        """All matrices that can be quantized."""
        return (*self.linears, *self.token_matrices)

    @property
    def matrices(self) -> dict[str, torch.Tensor]:
        """Their present weights, by name, as (outputs, inputs)."""
        return {layer.name: layer.matrix for layer in self.all_matrices}

    @property
    def left_alone(self) -> list[TensorPart]:
        """The parameters that are not quantized, each with its reason."""
        return [part for part in self.tensors if part.reason is not None]

    @property
    def left_in_blocks(self) -> list[TensorPart]:
        """The weights of the blocks that are not quantized: without vectors, such as norms and biases."""
        return [part for part in self.left_alone if part.block is not None and len(part.shape) > 1]

    @property
    def block_weights(self) -> int:
        """Number of weights in the blocks, quantized or not."""
        return self.parameter_count("block") + sum(part.count for part in self.left_in_blocks)

    def parameter_count(self, role: Role | None = None) -> int:
        return sum(part.count for part in self.tensors if role is None or part.role == role)


def dissect(model: nn.Module) -> Anatomy:
    """Find blocks, linear layers and the role of every parameter."""
    language = language_part(model)
    blocks = [(path, block) for path, block in _find_blocks(model) if path.startswith(language)]
    linears = [
        _linear_layer(block_path, block, index, path, module)
        for index, (block_path, block) in enumerate(blocks)
        for path, module in block.named_modules()
        if is_linear(module) and not is_router(block, path)
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

    token_matrices = tuple(_token_matrices(model))
    quantizable = in_blocks | {id(matrix.matrix) for matrix in token_matrices}
    names = tuple(path for path, _ in blocks)

    def part(name: str, parameter: nn.Parameter) -> TensorPart:
        block = next((index for index, path in enumerate(names) if name.startswith(f"{path}.")), None)
        reason = None
        if id(parameter) not in quantizable:
            reason = why_left_alone(model, name) if name.startswith(language) else part_beside(name)
        return TensorPart(name, tuple(parameter.shape), role(parameter), block, reason)

    tensors = tuple(part(name, parameter) for name, parameter in model.named_parameters())
    return Anatomy(names, tuple(linears), tensors, token_matrices, _buffer_bits(model))


def _buffer_bits(model: nn.Module) -> int:
    """Floats are stored in 16 bits."""
    stored = [value for value in model.state_dict(keep_vars=True).values() if not isinstance(value, nn.Parameter)]
    return sum(value.numel() * (16 if value.is_floating_point() else 8 * value.element_size()) for value in stored)


def _linear_layer(block_path: str, block: nn.Module, index: int, path: str, module: nn.Module) -> LinearLayer:
    layer = LinearLayer(
        f"{block_path}.{path}.weight", module, index, isinstance(module, Conv1D), _component(block, path)
    )
    parts = path.split(".")
    for depth in range(1, len(parts) - 1):
        around = block.get_submodule(".".join(parts[:depth]))
        if isinstance(around, SplitExperts):
            experts, share = ".".join([block_path, *parts[:depth]]), around.top_k / around.num_experts
            return replace(layer, experts=experts, expert=int(parts[depth]), share=share)
    return layer


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


def _find_blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    blocks: list[tuple[str, nn.Module]] = []
    for path, module in model.named_modules():
        inside_another = any(path.startswith(f"{block}.") for block, _ in blocks)
        if not isinstance(module, nn.ModuleList) or inside_another:
            continue
        if all(not is_linear(child) and any(map(is_linear, child.modules())) for child in module):
            blocks += [(f"{path}.{index}", child) for index, child in enumerate(module)]
    return blocks


def _token_matrices(model: nn.Module) -> Iterator[TokenMatrix]:
    """Embedding tables with a row per token, and the head. Tables of positions or token types are small and are not quantized."""
    if not isinstance(model, PreTrainedModel):
        return
    vocabulary = model.get_input_embeddings().num_embeddings
    head = model.get_output_embeddings()
    users: dict[int, dict[str, nn.Module]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        is_table = isinstance(module, nn.Embedding) and module.num_embeddings == vocabulary
        weight = module._parameters.get("weight")
        if weight is not None and (is_table or module is head):
            users.setdefault(id(weight), {})[path] = module
    for shared, modules in users.items():
        first, module = next(iter(modules.items()))
        obstacles = [_obstacle(path, user) for path, user in modules.items()]
        named = [name for name, p in model.named_parameters(remove_duplicate=False) if id(p) == shared]
        obstacles += [f"{name} is the same matrix" for name in named if name.removesuffix(".weight") not in modules]
        obstacle = next(filter(None, obstacles), None)
        reason = obstacle and f"in {type(model).__name__}, {obstacle}"
        yield TokenMatrix(f"{first}.weight", module, tuple(modules), reason)


def _obstacle(path: str, module: nn.Module) -> str | None:
    """Any use that a module makes of its matrix other than to look rows up (and scale them) or to multiply by it."""
    if isinstance(module, nn.Embedding):
        beside = [name for name in module.state_dict() if name != "weight"]
        if beside or module.max_norm is not None:
            return f"{path} also has {beside[0]}" if beside else f"{path} changes its rows as it looks them up"
        return None
    plain = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    return None if plain else f"{path} is a {type(module).__name__}, not a linear layer"


def _component(block: nn.Module, path: str) -> Component:
    parts = path.split(".")
    around = (block.get_submodule(".".join(parts[:depth])) for depth in range(1, len(parts)))
    return "attention" if any("attention" in type(module).__name__.lower() for module in around) else "feed-forward"
