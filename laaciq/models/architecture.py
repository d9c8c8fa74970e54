"""Facts about a model's architecture: from the configuration where it states them, otherwise from one small forward pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from laaciq.models.anatomy import is_linear
from laaciq.models.left_alone import language_part
from laaciq.models.loading import LanguageModel

_FEED_FORWARD = ("intermediate_size", "ffn_dim", "d_ff", "n_inner")
_ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "dense_act_fn", "activation")
_PROBE_TOKENS = 4


@dataclass
class _BlockTrace:
    """What ran in a block: norms and innermost modules with weights, in order, each with its input."""

    name: str
    module: nn.Module
    arguments: dict[str, Any] = field(default_factory=dict)
    width: int = 0
    ran: list[tuple[nn.Module, torch.Tensor]] = field(default_factory=list)


def architecture_facts(model: LanguageModel) -> dict[str, object]:
    """Type, sizes, norms and positions of a model; runs it once on four tokens.

    `blocks` counts encoder and decoder blocks together, `parameters` counts tied ones once. `norm` is LayerNorm where a shift of all inputs
    changes nothing, RMSNorm where a scaling alone does not: T5's "LayerNorm" is an RMSNorm. `norm_position` is *pre* where a block begins
    with a norm and *post* where it ends with one, before or after the sum with the residual; *inside* where norms stand in neither place.
    """
    config = model.module.config.get_text_config()
    traces = _trace(model)
    heads = _stated(config, ("num_attention_heads",))
    return {
        "model_type": model.module.config.model_type,
        "kind": model.kind,
        "multimodal": bool(language_part(model.module)),
        "parameters": model.anatomy.parameter_count(),
        "blocks": len(model.anatomy.block_names),
        "width": traces[0].width,
        "heads": heads,
        "key_value_heads": _key_value_heads(config, heads),
        "feed_forward": _stated(config, _FEED_FORWARD) or _last_linear_inputs(traces[0]),
        "activation": _stated(config, _ACTIVATION) or _activation_module(traces[0].module),
        "norm": _most_common([_norm(model, index, trace) for index, trace in enumerate(traces)]),
        "norm_position": _most_common([_norm_position(trace) for trace in traces]),
        "positions": _positions(model.module, config, traces),
        "vocabulary": model.vocabulary,
        "tied_embeddings": _tied(model.module),
    }


@torch.no_grad()
def _trace(model: LanguageModel) -> list[_BlockTrace]:
    """Run four tokens through the model and record what each block does."""
    module = model.module
    traces = [_BlockTrace(name, module.get_submodule(name)) for name in model.anatomy.block_names]
    hooks = []
    for trace in traces:
        hooks.append(trace.module.register_forward_pre_hook(_note_call(trace), with_kwargs=True))
        for part in trace.module.modules():
            # OLMo's norms have no weights.
            if _is_norm(part) or (not list(part.children()) and list(part.parameters())):
                hooks.append(part.register_forward_hook(_note_part(trace)))
    tokens = torch.arange(_PROBE_TOKENS, device=model.device).remainder(model.vocabulary)[None]
    inputs: dict[str, Any] = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    # Hybrids have caches of their own kinds.
    if model.kind != "masked":
        inputs["use_cache"] = False
    if model.kind == "encoder-decoder":
        inputs["decoder_input_ids"] = tokens
    try:
        module(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return traces


def _note_call(trace: _BlockTrace) -> Any:
    def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        trace.arguments = kwargs
        trace.width = next(value.shape[-1] for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))

    return hook


def _note_part(trace: _BlockTrace) -> Any:
    def hook(module: nn.Module, args: tuple, output: Any) -> None:
        if args:
            trace.ran.append((module, args[0]))

    return hook


def _norm_position(trace: _BlockTrace) -> str:
    positions = [where for where, at in (("pre", 0), ("post", -1)) if trace.ran and _is_norm(trace.ran[at][0])]
    if positions:
        return " and ".join(positions)
    return "inside" if any(_is_norm(module) for module, _ in trace.ran) else "none"


def _norm(model: LanguageModel, block: int, trace: _BlockTrace) -> str:
    """The kind of the norms over the block's width; norms of the queries and keys of single heads do not count."""
    with model.present(block):
        for module, inputs in trace.ran:
            if _is_norm(module) and inputs.shape[-1] == trace.width:
                return _norm_kind(module, inputs)
    return "none"


@torch.no_grad()
def _norm_kind(norm: nn.Module, like: torch.Tensor) -> str:
    # Small integers: exact in 16 bits, also when shifted or scaled, and large against the norm's ε.
    x = torch.arange(like.shape[-1], device=like.device).remainder(5).to(like.dtype).expand_as(like)
    before = norm(x)

    def unmoved(after: torch.Tensor) -> bool:
        # 1 % leaves room for 16-bit arithmetic; what is not invariant moves by tens of percent.
        return bool((after - before).abs().max() <= 0.01 * before.abs().max())

    if unmoved(norm(x + 3)):
        return "LayerNorm"
    return "RMSNorm" if unmoved(norm(4 * x)) else type(norm).__name__


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _positions(module: nn.Module, config: Any, traces: list[_BlockTrace]) -> str:
    """From the modules of the model and the arguments of its blocks. ALiBi first: Falcon builds rotations even where it does not use them."""
    named = dict(module.named_modules())
    names = " ".join(named).lower()
    classes = " ".join(type(part).__name__ for part in named.values()).lower()
    attention = getattr(config, "attn_config", None)
    if any(trace.arguments.get("alibi") is not None for trace in traces) or getattr(attention, "alibi", False):
        return "ALiBi"
    if "relative_attention_bias" in names or "rel_embeddings" in names:
        return "relative"
    if "rotary" in classes or getattr(config, "rotary_dim", None):
        return "rotary"
    if "sinusoidal" in classes:
        return "sinusoidal"
    longest = getattr(config, "max_position_embeddings", None)
    tables = {name: part for name, part in named.items() if isinstance(part, nn.Embedding)}
    if any("position" in name or table.num_embeddings == longest for name, table in tables.items()):
        return "learned"
    return "unknown"


def _key_value_heads(config: Any, heads: Any) -> Any:
    """A configuration without this key describes attention with as many key-value heads as heads, or with one (multi-query)."""
    falcon = getattr(config, "new_decoder_architecture", False)  # only then does `num_kv_heads` have this meaning
    stated = _stated(config, ("num_kv_heads" if falcon else "num_key_value_heads",))
    return stated or (1 if getattr(config, "multi_query", False) else heads)


def _last_linear_inputs(trace: _BlockTrace) -> int | None:
    """A block ends with the projection down from the feed-forward width."""
    return next((inputs.shape[-1] for module, inputs in reversed(trace.ran) if is_linear(module)), None)


def _activation_module(block: nn.Module) -> str | None:
    """For configurations that state none, such as BLOOM's: its `BloomGelu` is "gelu"."""
    for part in block.modules():
        name = type(part).__name__.lower()
        for function in ("gelu", "silu", "relu"):
            if name.endswith((function, f"{function}activation")):
                return function
    return None


def _stated(config: Any, keys: tuple[str, ...]) -> Any:
    return next((value for key in keys if (value := getattr(config, key, None)) is not None), None)


def _tied(module: Any) -> bool:
    head = module.get_output_embeddings()
    return head is not None and head.weight is module.get_input_embeddings().weight


def _most_common(answers: list[str]) -> str:
    """A first or last block may differ: ModernBERT's first has no norm in front, as the embeddings are normalised already."""
    return Counter(answers).most_common(1)[0][0]
