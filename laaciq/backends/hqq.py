"""HQQ: groups of 64 along the inputs, a scale and a zero point each in the model's 16 bits, output head left alone.

At 4 bits HQQ rounds the zero point; at 3 bits it packs ten codes into 32 bits, so that a weight takes 3.2.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from laaciq.backends.contract import Backend, BackendResult, logit_difference, matrices_besides, stored_bits

GROUP_SIZE = 64


def quantize(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int, device: str = "cpu"
) -> BackendResult:
    """No text is read."""
    return _quantize(model, bits, device)[0]


def check(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int, device: str = "cpu"
) -> tuple[BackendResult, float]:
    found, library_model = _quantize(model, bits, device)
    ours = copy.deepcopy(model).to(device)
    found.put_into(ours)
    return found, logit_difference(ours, library_model, tokenizer, texts[0])


def _quantize(model: torch.nn.Module, bits: int, device: str) -> tuple[BackendResult, torch.nn.Module]:
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    library_model = copy.deepcopy(model)
    config = BaseQuantizeConfig(nbits=bits, group_size=GROUP_SIZE, axis=1)
    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    for name, module in list(library_model.named_modules()):
        # Those that `AutoHQQHFModel.quantize_model` takes.
        if type(module) is not torch.nn.Linear or name.split(".")[-1] == "lm_head":
            continue
        # HQQ's groups may run over the end of a row, but must fill the matrix; otherwise it stops with an assertion.
        if module.weight.numel() % GROUP_SIZE:
            continue
        layer = HQQLinear(module, config, compute_dtype=module.weight.dtype, device=device)
        library_model.set_submodule(name, layer)
        weights[f"{name}.weight"] = layer.dequantize().detach().cpu()
        stored[f"{name}.weight"] = stored_bits(layer.W_q, layer.meta["scale"], layer.meta["zero"])
    found = BackendResult(
        name=f"HQQ, {bits} bits",
        settings=f"groups of {GROUP_SIZE}, affine, no text read",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )
    return found, library_model.to(device)


BACKENDS = (
    Backend(
        "hqq",
        "HQQ: half-quadratic search for the zero point of every group of 64.",
        library="hqq",
        extra="hqq",
        bits=(1, 2, 3, 4, 8),
        reads_text=False,
        run=quantize,
    ),
)
