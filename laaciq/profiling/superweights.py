"""Super-weight candidates from one forward pass (Yu et al. 2024, "The Super Weight in Large Language Models", arXiv 2411.07191).

A super weight is a single weight of a block's last projection that turns one very large input into one very large output. The pass records,
for every such projection, the largest input and the largest output of any token. If both spike, the weight at (output, input) is a
candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from laaciq.models import LanguageModel, LinearLayer
from laaciq.profiling.results import SuperWeight

# A spike: the largest magnitude over the root mean square of all entries of that tensor.
SPIKE = 50.0


@torch.inference_mode()
def super_weights(model: LanguageModel, text: str) -> list[SuperWeight]:
    """Super-weight candidates from one pass over `text`, including start tokens, where spikes usually are."""
    candidates: list[SuperWeight] = []
    handles = [linear.module.register_forward_hook(_hook(linear, candidates)) for linear in _last_projections(model)]
    ids = model.tokenizer(text, return_tensors="pt", truncation=True, max_length=model.longest or 512)["input_ids"]
    arguments: dict[str, Any] = {"input_ids": ids.to(model.device)}
    if model.kind != "masked":
        arguments["use_cache"] = False
    if model.kind == "encoder-decoder":
        arguments["decoder_input_ids"] = arguments["input_ids"]
    try:
        model.module(**arguments)
    finally:
        for handle in handles:
            handle.remove()
    return candidates


def _last_projections(model: LanguageModel) -> list[LinearLayer]:
    """For every block the feed-forward layer that writes to the residual stream, the last layer with the block's width; and that of every
    expert.
    """
    width = model.module.get_input_embeddings().weight.shape[1]
    last: dict[tuple[int, int | None], LinearLayer] = {}
    for linear in model.anatomy.linears:
        if linear.component == "feed-forward" and linear.shape[0] == width:
            last[linear.block, linear.expert] = linear
    return list(last.values())


def _hook(linear: LinearLayer, candidates: list[SuperWeight]) -> Callable[..., None]:
    def hook(module: Any, inputs: Any, output: torch.Tensor) -> None:
        entering, leaving = (_peak(tensor) for tensor in (inputs[0], output))
        if min(entering[2], leaving[2]) < SPIKE:
            return
        row, column = leaving[0], entering[0]
        weight = linear.matrix[row, column].item()
        candidates.append(
            SuperWeight(
                tensor=linear.name, row=row, column=column, weight=weight, input=entering[1], activation=leaving[1]
            )
        )

    return hook


def _peak(tensor: torch.Tensor) -> tuple[int, float, float]:
    """Channel, value and spike ratio of the entry of largest magnitude."""
    flat = tensor.reshape(-1, tensor.shape[-1]).float()
    place = int(flat.abs().argmax())
    value = flat.reshape(-1)[place].item()
    return place % flat.shape[1], value, abs(value) / max(flat.square().mean().sqrt().item(), 1e-30)
