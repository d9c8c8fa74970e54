"""torchao, weights only: at 8 bits `Int8WeightOnlyConfig`, a scale per row; below, `IntxWeightOnlyConfig`, a scale per 32 inputs.

Both are symmetric with scales in the model's type. The output head is left alone, as by transformers' `TorchAoConfig`. Intx runs on every
device. It stores each code in a byte, whatever its bits, and a zero point of 8 bits per group although all are 0: 8.75 bits per weight, which
is the size counted here. `settings` name the size if it were packed. The packed int4 format exists for accelerators only.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from laaciq.backends.contract import Backend, BackendResult, matrices_besides, stored_bits

GROUP_SIZE = 32


def quantize(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int, device: str = "cpu"
) -> BackendResult:
    """Reads no text."""
    return quantize_copy(model, bits, device)[0]


def quantize_copy(model: Any, bits: int, device: str) -> tuple[BackendResult, torch.nn.Module]:
    """The result, and the copy of the model that the library quantized."""
    from torchao.quantization import quantize_

    library_model = copy.deepcopy(model).to(device)
    head = library_model.get_output_embeddings()
    # If groups do not fill a row, torchao stops with an assertion.
    whole = 1 if bits == 8 else GROUP_SIZE
    taken = {
        name: module
        for name, module in library_model.named_modules()
        if type(module) is torch.nn.Linear and module is not head and module.in_features % whole == 0
    }
    quantize_(library_model, _config(bits), lambda _, name: name in taken)
    weights = {f"{name}.weight": module.weight.dequantize().detach().cpu() for name, module in taken.items()}
    stored = {f"{name}.weight": _size(module.weight) for name, module in taken.items()}
    scale_bits = torch.finfo(model.dtype).bits
    packed = f", {bits + scale_bits / GROUP_SIZE:.2f} bits per weight if it were packed"
    grid = "rows" if bits == 8 else f"groups of {GROUP_SIZE}"
    result = BackendResult(
        settings=f"{grid}, symmetric, no text read{packed if bits < 8 else ''}",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )
    return result, library_model


def _config(bits: int) -> Any:
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup

    if bits == 8:
        # The default sets compiler options for the whole process.
        return Int8WeightOnlyConfig(set_inductor_config=False)
    return IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}"), granularity=PerGroup(GROUP_SIZE))


def _size(weight: Any) -> float:
    names = [*weight.tensor_data_names, *getattr(weight, "optional_tensor_data_names", ())]
    return stored_bits(*(t for name in names if (t := getattr(weight, name)) is not None))


BACKENDS = (
    Backend(
        "torchao",
        "torchao, weights only: groups of 32, a byte per weight; at 8 bits rows.",
        library="torchao",
        extra="torchao",
        bits=(1, 2, 3, 4, 5, 6, 7, 8),
        reads_text=False,
        run=quantize,
    ),
)
