"""Does the original with a back end's weights compute what the library's model computes?"""

from __future__ import annotations

import copy
from typing import Any

import torch

from laaciq.backends.contract import BackendResult


@torch.no_grad()
def logits(model: Any, tokenizer: Any, text: str) -> torch.Tensor:
    tokens = tokenizer(text, return_tensors="pt")["input_ids"]
    return model.eval()(input_ids=tokens.to(next(model.parameters()).device)).logits.float().cpu()


def relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """max |ours − theirs| / max |theirs|."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


def logit_difference(model: Any, result: BackendResult, library_model: Any, tokenizer: Any, text: str) -> float:
    """Between `model` with the weights of `result` and `library_model`, relative to the largest logit."""
    return relative_difference(
        logits(with_weights(model, result), tokenizer, text), logits(library_model, tokenizer, text)
    )


def with_weights(model: Any, result: BackendResult) -> Any:
    ours = copy.deepcopy(model)
    result.put_into(ours)
    return ours


def bits_per_weight(result: BackendResult) -> float:
    """Of the quantized matrices alone."""
    quantized = [n for n, weight in result.weights.items() if weight.dim() > 1 and n not in result.left_alone]
    return sum(result.bits[n] for n in quantized) / sum(result.weights[n].numel() for n in quantized)
