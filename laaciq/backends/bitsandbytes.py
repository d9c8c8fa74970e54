"""NF4 and LLM.int8 of bitsandbytes, as transformers' `BitsAndBytesConfig` applies them; the output head is left alone.

NF4 stores 4 bits per weight and a maximum per block of 64. With double quantization, as in QLoRA, a maximum takes 8 bits and 256 of them share
a float32: 4.127 bits per weight. The table of code values is the same for every tensor and is not counted.

LLM.int8 stores 8 bits per weight and a float32 maximum per row. At run time it also rounds the inputs of a layer to 8 bits, except features
with values beyond 6. That is no property of the weights, and only weights are returned here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from laaciq.backends.contract import Backend, BackendResult, matrices_besides, stored_bits
from laaciq.errors import BadOption

BLOCK_SIZE = 64
# Features with inputs beyond it are not rounded at run time; the default of transformers.
OUTLIER_THRESHOLD = 6.0


def quantize(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int, device: str = "cpu"
) -> BackendResult:
    """NF4 at 4 bits, LLM.int8 at 8. Reads no text."""
    return quantize_copy(model, bits, device)[0]


def quantize_copy(model: torch.nn.Module, bits: int, device: str) -> tuple[BackendResult, torch.nn.Module]:
    """The result, and the copy of the model that the library quantized."""
    if bits not in (4, 8):
        raise BadOption(f"bitsandbytes supports 4 bits (NF4) and 8 (LLM.int8), not {bits}")
    library_model = copy.deepcopy(model)
    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    for name, module, transposed in list(_converted(library_model)):
        matrix = module.weight.data.T if transposed else module.weight.data
        layer, dequantized, size = _nf4(matrix, device) if bits == 4 else _int8(matrix, device)
        layer.bias = module.bias
        library_model.set_submodule(name, layer.to(device))
        weights[f"{name}.weight"] = dequantized.T.contiguous() if transposed else dequantized
        stored[f"{name}.weight"] = size
    grids = {
        4: f"NF4 in blocks of {BLOCK_SIZE}, maxima in 8 bits",
        8: "LLM.int8 by row, maxima in 32 bits, inputs not rounded here",
    }
    result = BackendResult(
        settings=f"{grids[bits]}, no text read",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )
    return result, library_model.to(device)


def _converted(model: torch.nn.Module) -> Iterator[tuple[str, Any, bool]]:
    """The layers that transformers converts: name, module, and whether its weights are stored transposed."""
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    kept = get_keys_to_not_convert(model)
    for name, module in model.named_modules():
        if (isinstance(module, Conv1D) or type(module) is torch.nn.Linear) and should_convert_module(name, kept):
            yield name, module, isinstance(module, Conv1D)


def _nf4(matrix: torch.Tensor, device: str) -> tuple[Any, torch.Tensor, float]:
    """The library's layer, its dequantized weights, and their size in bits."""
    import bitsandbytes as bnb

    outputs, inputs = matrix.shape
    # `compress_statistics` is double quantization.
    layer = bnb.nn.Linear4bit(inputs, outputs, False, matrix.dtype, compress_statistics=True, quant_type="nf4")
    layer.weight = bnb.nn.Params4bit(
        matrix.contiguous(), requires_grad=False, compress_statistics=True, quant_type="nf4", module=layer
    )
    layer.to(device)
    codes, state = layer.weight.data, layer.weight.quant_state
    # Before any forward pass: on the CPU the first one repacks the codes in place.
    dequantized = bnb.functional.dequantize_4bit(codes, state).cpu()
    return layer, dequantized, stored_bits(codes, state.absmax, state.state2.absmax, state.offset)


def _int8(matrix: torch.Tensor, device: str) -> tuple[Any, torch.Tensor, float]:
    """Like `_nf4`."""
    import bitsandbytes as bnb

    outputs, inputs = matrix.shape
    layer = bnb.nn.Linear8bitLt(inputs, outputs, False, has_fp16_weights=False, threshold=OUTLIER_THRESHOLD)
    layer.weight = bnb.nn.Int8Params(matrix.contiguous(), requires_grad=False, has_fp16_weights=False)
    layer.to(device)
    codes, maxima = layer.weight.CB, layer.weight.SCB
    dequantized = bnb.functional.int8_vectorwise_dequant(codes, maxima).to(matrix.dtype).cpu()
    return layer, dequantized, stored_bits(codes, maxima)


BACKENDS = (
    Backend(
        "nf4",
        "NF4 of bitsandbytes: QLoRA's code in blocks of 64, with double quantization.",
        library="bitsandbytes",
        extra="bitsandbytes",
        bits=(4,),
        reads_text=False,
        run=quantize,
    ),
    Backend(
        "bnb-int8",
        "LLM.int8 of bitsandbytes: rows in 8 bits, without its rounding of inputs at run time.",
        library="bitsandbytes",
        extra="bitsandbytes",
        bits=(8,),
        reads_text=False,
        run=quantize,
    ),
)
