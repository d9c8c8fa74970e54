"""Mixtures of experts as plain linear layers.

transformers holds all experts of a block in one parameter of three dimensions. Here every expert becomes a module with one linear layer per
projection, under the names of the checkpoints on the hub (`experts.3.gate_proj.weight`), and the function stays the same. So everything that
treats linear layers treats experts. An expert reads only the tokens that the router sends to it; they travel with its inputs, so that hooks
know them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from laaciq.errors import BrokenModel

# The attribute of an expert's inputs that holds the tokens they belong to, as indices into the flat batch.
_TOKENS = "_laaciq_tokens"
# Its class has no mark of transformers' common interface, and another call.
_SCORED_BEFORE = "Llama4TextExperts"
# No model has more in one block.
_MOST_EXPERTS = 4096


def split_experts(model: nn.Module) -> None:
    """Replace all fused experts of a model, in place. Weights are not copied where a view suffices. Experts of other kinds stay as they are,
    and the anatomy lists them as left alone.
    """
    for path, module in list(model.named_modules()):
        if _is_splittable(module):
            if len(module.down_proj) > _MOST_EXPERTS:
                raise BrokenModel(
                    f"{path} has {len(module.down_proj)} experts: config.json is damaged; copy the model again"
                )
            kind = ScoredExperts if _scored_before(module) else SplitExperts
            model.set_submodule(path, kind(module, _experts_per_token(model.get_submodule(path.rpartition(".")[0]))))


def _experts_per_token(around: nn.Module) -> int:
    """From the router, or the module around it."""
    stated = (getattr(module, "top_k", None) for module in (around, *around.children()))
    return next((number for number in stated if isinstance(number, int)), 1)


def _scored_before(module: nn.Module) -> bool:
    return type(module).__name__ == _SCORED_BEFORE


def _is_splittable(module: Any) -> bool:
    """Experts with transformers' common interface, which states their layout, and Llama 4's. All their parameters must be projections."""
    known = _scored_before(module) or all(hasattr(module, name) for name in ("has_gate", "is_transposed", "has_bias"))
    return known and {name for name, _ in module.named_parameters()} == set(_fused_names(module))


def _fused_names(module: Any) -> list[str]:
    first = "gate_up_proj" if getattr(module, "has_gate", True) else "up_proj"
    names = [first, "down_proj"]
    return names + [f"{name}_bias" for name in names] if getattr(module, "has_bias", False) else names


class SplitExperts(nn.ModuleList):
    """Experts as a list of modules with the linear layers `gate_proj` (if the kind has gates), `up_proj` and `down_proj`. A token is sent to
    `top_k` of them.
    """

    def __init__(self, fused: Any, top_k: int) -> None:
        super().__init__()
        self.num_experts, self.top_k = len(fused.down_proj), top_k
        self.has_gate = getattr(fused, "has_gate", True)
        self.is_concatenated = getattr(fused, "is_concatenated", True)
        for index in range(self.num_experts):
            self.append(_expert(fused, index))
        # For its activation. Not a submodule: it has no weights any more.
        for name in _fused_names(fused):
            delattr(fused, name)
        self._fused = (fused,)

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """Σ over a token's experts of their outputs, weighted. Only experts with tokens are run."""
        chosen = top_k_index.reshape(-1)
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=self.num_experts).tolist()
        parts = []
        for expert, places in zip(self, order.split(counts), strict=True):
            if len(places):
                tokens = places // top_k_index.shape[-1]
                parts.append(self._run(expert, hidden_states[tokens], tokens) * top_k_weights.reshape(-1)[places, None])
        weighted = torch.cat(parts)[order.argsort()]
        # Summed by token, in the order of its experts, as transformers does.
        return weighted.view(len(hidden_states), -1, weighted.shape[-1]).sum(1).to(hidden_states.dtype)

    def _run(self, expert: Any, inputs: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        _mark(inputs, tokens)
        up = expert.up_proj(inputs)
        between = self._gated(expert.gate_proj(inputs), up) if self.has_gate else self._fused[0].act_fn(up)
        _mark(between, tokens)
        return expert.down_proj(between)

    def _gated(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([gate, up], -1) if self.is_concatenated else torch.stack([gate, up], -1).flatten(-2)
        return self._fused[0]._apply_gate(joined)


class ScoredExperts(SplitExperts):
    """Llama 4: every expert is called with all tokens, each multiplied by its score, which is 0 where the router does not send it."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        by_expert = hidden_states.view(self.num_experts, -1, hidden_states.shape[-1])
        outputs = []
        for expert, inputs in zip(self, by_expert, strict=True):
            tokens = inputs.count_nonzero(-1).nonzero()[:, 0]
            output = torch.zeros_like(inputs)
            if len(tokens):
                output = output.index_copy(0, tokens, self._run(expert, inputs[tokens], tokens))
            outputs.append(output)
        return torch.cat(outputs)

    def _gated(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return up * self._fused[0].act_fn(gate)


def _expert(fused: Any, index: int) -> nn.Module:
    expert = nn.Module()
    for name, weight, bias in _projections(fused, index):
        outputs, inputs = weight.shape
        with torch.device("meta"):
            linear = nn.Linear(inputs, outputs, bias=bias is not None)
        linear.weight = _parameter(weight)
        if bias is not None:
            linear.bias = _parameter(bias)
        expert.add_module(name, linear)
    return expert


def _projections(fused: Any, index: int) -> Iterator[tuple[str, torch.Tensor, torch.Tensor | None]]:
    """Name, weight (outputs, inputs) and bias of every projection of one expert."""
    turned = getattr(fused, "is_transposed", True)
    for name in ("gate_up_proj" if getattr(fused, "has_gate", True) else "up_proj", "down_proj"):
        weight = getattr(fused, name).detach()[index]
        weight = weight.t() if turned else weight
        bias = getattr(fused, f"{name}_bias").detach()[index] if getattr(fused, "has_bias", False) else None
        if name != "gate_up_proj":
            yield name, weight, bias
            continue
        rows = len(weight) // 2
        concatenated = getattr(fused, "is_concatenated", True)
        halves = (slice(None, rows), slice(rows, None)) if concatenated else (slice(0, None, 2), slice(1, None, 2))
        for part, half in zip(("gate_proj", "up_proj"), halves, strict=True):
            yield part, weight[half], None if bias is None else bias[half]


def _parameter(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.contiguous(), requires_grad=False)


def _mark(inputs: torch.Tensor, tokens: torch.Tensor) -> None:
    if not torch.compiler.is_compiling():
        setattr(inputs, _TOKENS, tokens)


def routed_tokens(inputs: torch.Tensor) -> torch.Tensor | None:
    """The tokens of the flat batch that these inputs of an expert belong to; None if they are not an expert's."""
    return getattr(inputs, _TOKENS, None)


def same_tokens(original: torch.Tensor | None, inputs: torch.Tensor) -> torch.Tensor | None:
    """The rows of `original` for the tokens of `inputs`, both inputs of the same layer in two models. Where an expert did not read a token in
    the original, its row of `inputs` stands for it. Unchanged for layers that read all tokens.
    """
    tokens = routed_tokens(inputs)
    if tokens is None:
        return original
    matched = inputs.clone()
    if original is not None and (before := routed_tokens(original)) is not None:
        row_of = dict(zip(before.tolist(), range(len(before)), strict=True))
        pairs = [(row, row_of[token]) for row, token in enumerate(tokens.tolist()) if token in row_of]
        if pairs:
            here, there = torch.tensor(pairs, device=inputs.device).T
            matched[here] = original[there]
    return matched
