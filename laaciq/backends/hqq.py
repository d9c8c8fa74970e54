"""HQQ: groups of 64 inputs, each with a scale and a zero point in the model's 16 bits; the output head is left alone.

At 4 bits HQQ rounds the zero point. At 3 bits it packs ten codes into 32 bits, so that a weight takes 3.2 bits.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from laaciq.backends.contract import Backend, BackendResult, matrices_besides, stored_bits

GROUP_SIZE = 64


def quantize(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int, device: str = "cpu"
) -> BackendResult:
    """Reads no text."""
    return quantize_copy(model, bits, device)[0]


def quantize_copy(model: torch.nn.Module, bits: int, device: str) -> tuple[BackendResult, torch.nn.Module]:
    """The result, and the copy of the model that the library quantized."""
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    library_model = copy.deepcopy(model)
    config = BaseQuantizeConfig(nbits=bits, group_size=GROUP_SIZE, axis=1)
    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    for name, module in list(library_model.named_modules()):
        # The layers that `AutoHQQHFModel.quantize_model` takes.
        if type(module) is not torch.nn.Linear or name.split(".")[-1] == "lm_head":
            continue
        # Groups may run over the end of a row, but must fill the matrix: otherwise HQQ stops with an assertion.
        if module.weight.numel() % GROUP_SIZE:
            continue
        layer = HQQLinear(module, config, compute_dtype=module.weight.dtype, device=device)
        library_model.set_submodule(name, layer)
        weights[f"{name}.weight"] = layer.dequantize().detach().cpu()
        stored[f"{name}.weight"] = stored_bits(layer.W_q, layer.meta["scale"], layer.meta["zero"])
    result = BackendResult(
        settings=f"groups of {GROUP_SIZE}, affine, no text read",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )
    return result, library_model.to(device)


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
