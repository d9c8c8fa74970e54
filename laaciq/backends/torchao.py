"""torchao's weight-only configurations: at 8 bits `Int8WeightOnlyConfig`, a scale a row; below, `IntxWeightOnlyConfig`, a scale for 32 inputs.

Both are symmetric, scales in the model's type, output head left alone as transformers' `TorchAoConfig` does. Intx is the format that it has on
every device, and that keeps a whole byte for a weight of any bits, and 8 bits of zero point a group though all are 0: 8.75 bits a weight,
which is what is counted here; `settings` say what its codes and scales would take if packed. Packed int4 is there for accelerators alone.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from laaciq.backends.contract import Backend, BackendResult, logit_difference, matrices_besides, stored_bits

GROUP_SIZE = 32


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


def _quantize(model: Any, bits: int, device: str) -> tuple[BackendResult, torch.nn.Module]:
    from torchao.quantization import quantize_

    library_model = copy.deepcopy(model).to(device)
    head = library_model.get_output_embeddings()
    # torchao stops with an assertion where a group does not fill the row.
    whole = 1 if bits == 8 else GROUP_SIZE
    taken = {
        name: module
        for name, module in library_model.named_modules()
        if type(module) is torch.nn.Linear and module is not head and module.in_features % whole == 0
    }
    quantize_(library_model, _config(bits), lambda _, name: name in taken)
    weights = {f"{name}.weight": module.weight.dequantize().detach().cpu() for name, module in taken.items()}
    stored = {f"{name}.weight": _size(module.weight) for name, module in taken.items()}
    scale_bits = 8 * torch.finfo(model.dtype).bits // 8
    packed = f", {bits + scale_bits / GROUP_SIZE:.2f} bits a weight if it were packed"
    found = BackendResult(
        name=f"torchao, {bits} bits",
        settings=f"{'rows' if bits == 8 else f'groups of {GROUP_SIZE}'}, symmetric, no text read{packed if bits < 8 else ''}",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )
    return found, library_model


def _config(bits: int) -> Any:
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup

    if bits == 8:
        # By default it sets options of the compiler for the whole process.
        return Int8WeightOnlyConfig(set_inductor_config=False)
    return IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}"), granularity=PerGroup(GROUP_SIZE))


def _size(weight: Any) -> float:
    names = [*weight.tensor_data_names, *getattr(weight, "optional_tensor_data_names", ())]
    return stored_bits(*(t for name in names if (t := getattr(weight, name)) is not None))


BACKENDS = (
    Backend(
        "torchao",
        "torchao, weights only: groups of 32 kept a byte a weight, at 8 bits rows.",
        library="torchao",
        extra="torchao",
        bits=(1, 2, 3, 4, 5, 6, 7, 8),
        reads_text=False,
        run=quantize,
    ),
)
