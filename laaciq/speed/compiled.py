"""Decoding as a server does it: the step of one token compiled, with a cache of fixed size, so that nothing is traced or allocated again."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel, StaticCache

from laaciq.quantization.layers import prepare_layers


class CompiledDecoding:
    """Greedy decoding of a causal model. As in transformers' `generate`, the prompt is not compiled."""

    def __init__(self, module: PreTrainedModel, *, longest: int) -> None:
        """`longest` is the number of tokens that the cache holds."""
        prepare_layers(module)
        self._module = module
        self._cache = StaticCache(config=module.config, max_cache_len=longest)
        device = next(module.parameters()).device
        self._on_cuda = device.type == "cuda"
        names = inspect.signature(module.forward).parameters
        self._further: dict[str, Any] = {"use_cache": True} | (
            {"logits_to_keep": 1} if "logits_to_keep" in names else {}
        )
        # Earlier versions of transformers want the position beside the cache.
        self._positions = torch.arange(longest, device=device) if "cache_position" in names else None
        # In one graph, or an error that says what keeps it from being one. On CUDA it is replayed as a CUDA graph.
        self._step = torch.compile(_next_tokens, fullgraph=True, mode="reduce-overhead" if self._on_cuda else None)

    @torch.no_grad()
    def run(self, ids: torch.Tensor, new_tokens: int) -> tuple[float, float]:
        """Seconds up to the first new token, and from there to the last."""
        self._cache.reset()
        began = self._now()
        tokens = self._call(_next_tokens, ids, 0)
        first = self._now()
        for position in range(ids.shape[1], ids.shape[1] + new_tokens - 1):
            torch.compiler.cudagraph_mark_step_begin()
            # The next step overwrites what this one returned.
            tokens = self._call(self._step, tokens, position).clone()
        return first - began, self._now() - first

    def _call(self, step: Callable[..., torch.Tensor], ids: torch.Tensor, position: int) -> torch.Tensor:
        further = self._further
        if self._positions is not None:
            further = further | {"cache_position": self._positions[position : position + ids.shape[1]]}
        return step(self._module, ids, self._cache, further)

    def _now(self) -> float:
        if self._on_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()


def _next_tokens(
    module: PreTrainedModel, ids: torch.Tensor, cache: StaticCache, further: dict[str, Any]
) -> torch.Tensor:
    logits = module(input_ids=ids, past_key_values=cache, **further).logits
    return logits[:, -1:].argmax(-1)
