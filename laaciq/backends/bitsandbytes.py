"""NF4 of bitsandbytes, as transformers' `BitsAndBytesConfig` applies it: blocks of 64, the output head left alone.

Stored are 4 bits a weight and a maximum a block: float32 (4.5 bits a weight), or with double quantization 8 bits and a float32 for 256
blocks (4.127). The tables of the code values, which every tensor's state holds again, are the same everywhere and not counted.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from laaciq.backends.contract import Quantized, logit_difference, matrices_besides, stored_bits
from laaciq.errors import BadOption

BLOCK_SIZE = 64


def quantize(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int = 4, device: str = "cpu", double: bool = True
) -> Quantized:
    """No text is read. `double` quantizes the blocks' maxima too, as QLoRA does."""
    return _quantize(model, bits, device, double)[0]


def check(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int = 4, device: str = "cpu", double: bool = True
) -> tuple[Quantized, float]:
    found, library_model = _quantize(model, bits, device, double)
    ours = copy.deepcopy(model).to(device)
    found.put_into(ours)
    return found, logit_difference(ours, library_model, tokenizer, texts[0])


def _quantize(model: torch.nn.Module, bits: int, device: str, double: bool) -> tuple[Quantized, torch.nn.Module]:
    if bits != 4:
        raise BadOption(f"NF4 has 4 bits, not {bits}.")
    import bitsandbytes as bnb
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    library_model = copy.deepcopy(model)
    kept = get_keys_to_not_convert(library_model)
    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    for name, module in list(library_model.named_modules()):
        transposed = isinstance(module, Conv1D)
        if not (transposed or type(module) is torch.nn.Linear) or not should_convert_module(name, kept):
            continue
        matrix = module.weight.data.T if transposed else module.weight.data
        outputs, inputs = matrix.shape
        layer = bnb.nn.Linear4bit(
            inputs, outputs, module.bias is not None, matrix.dtype, compress_statistics=double, quant_type="nf4"
        )
        layer.weight = bnb.nn.Params4bit(
            matrix.contiguous(), requires_grad=False, compress_statistics=double, quant_type="nf4", module=layer
        )
        layer.bias = module.bias
        library_model.set_submodule(name, layer.to(device))
        codes, state = layer.weight.data, layer.weight.quant_state
        # Before any forward pass: on the CPU the first one repacks the codes in place.
        back = bnb.functional.dequantize_4bit(codes, state).cpu()
        weights[f"{name}.weight"] = back.T.contiguous() if transposed else back
        nested = (state.state2.absmax, state.offset) if double else ()
        stored[f"{name}.weight"] = stored_bits(codes, state.absmax, *nested)
    found = Quantized(
        name="NF4, double quantization" if double else "NF4",
        settings=f"bitsandbytes, blocks of {BLOCK_SIZE}, maxima in {'8' if double else '32'} bits, no text read",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )
    return found, library_model.to(device)
