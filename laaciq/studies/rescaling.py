"""do(κ): rescalings that change a block's kurtosis and not the model's function.

A norm's gain (and bias) at one channel is divided by s, and the columns of all linear layers that read that norm are multiplied by s.
Outputs stay the same, but the weights now have an outlier column. One forward pass shows which layers read which norm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from laaciq.errors import BadOption
from laaciq.models import LanguageModel, LinearLayer

_PROBE = "The first rain fell on 12 March."


@torch.no_grad()
def plant_outliers(model: LanguageModel, blocks: list[int], *, channel: int = 0, factor: float = 64.0) -> None:
    """Give the named blocks outlier columns, in place. Raises an error, and changes nothing, if the function would change."""
    readers = _norm_readers(model)
    before = _logits(model)
    chosen = [(norm, linears) for norm, linears in readers if linears[0].block in blocks]
    missing = set(blocks) - {linears[0].block for _, linears in chosen}
    if missing:
        raise BadOption(
            f"block {min(missing)} has no norm that linear layers read directly: it cannot be rescaled this way"
        )
    _rescale(chosen, channel, factor)
    after = _logits(model)
    if not torch.allclose(before, after, rtol=1e-3, atol=1e-3 * float(before.abs().max())):
        _rescale(chosen, channel, 1 / factor)
        raise BadOption(
            f"{type(chosen[0][0]).__name__} does not scale with its weight: this rescaling would change the model"
        )


def _rescale(chosen: list[tuple[nn.Module, list[LinearLayer]]], channel: int, factor: float) -> None:
    for norm, linears in chosen:
        for parameter in norm.parameters(recurse=False):
            parameter[channel] /= factor
        for linear in linears:
            linear.matrix[:, channel] *= factor


def _norm_readers(model: LanguageModel) -> list[tuple[nn.Module, list[LinearLayer]]]:
    """Norms inside blocks, each with the linear layers that read exactly its output tensor."""
    written: dict[int, tuple[nn.Module, torch.Tensor]] = {}
    readers: dict[nn.Module, list[LinearLayer]] = {}

    def note_output(norm: nn.Module) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                written[id(output)] = (norm, output)

        return hook

    def note_input(linear: LinearLayer) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            if id(inputs[0]) in written:
                readers.setdefault(written[id(inputs[0])][0], []).append(linear)

        return hook

    handles = [
        module.register_forward_hook(note_output(module))
        for module in model.module.modules()
        if "norm" in type(module).__name__.lower() and next(module.parameters(recurse=False), None) is not None
    ]
    handles += [linear.module.register_forward_hook(note_input(linear)) for linear in model.anatomy.linears]
    try:
        _logits(model)
    finally:
        for handle in handles:
            handle.remove()
    return list(readers.items())


def _logits(model: LanguageModel) -> torch.Tensor:
    ids = model.tokenizer(_PROBE, return_tensors="pt")["input_ids"].to(model.device)
    arguments = {"input_ids": ids}
    if model.kind == "encoder-decoder":
        arguments["decoder_input_ids"] = ids
    return model.module(**arguments).logits.float()
