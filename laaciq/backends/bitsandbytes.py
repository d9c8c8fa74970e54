"""NF4 and LLM.int8 of bitsandbytes, as transformers' `BitsAndBytesConfig` applies them: the output head left alone.

NF4 stores 4 bits a weight and a maximum for every block of 64: float32 (4.5 bits a weight), or with double quantization 8 bits and a float32
for 256 blocks (4.127). The tables of the code values, which every tensor's state holds again, are the same everywhere and not counted.

LLM.int8 stores 8 bits a weight and a float32 maximum a row. At run time it also rounds what layers are given to 8 bits, but for features
with values beyond 6: that is no property of the weights, and weights alone are what is given here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from laaciq.backends.contract import Backend, BackendResult, logit_difference, matrices_besides, stored_bits
from laaciq.errors import BadOption

BLOCK_SIZE = 64
# Inputs beyond it are not rounded at run time; the default of transformers.
OUTLIER_THRESHOLD = 6.0


def quantize(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str = "cpu",
    double: bool = True,
) -> BackendResult:
    """NF4 at 4 bits, LLM.int8 at 8. No text is read. `double` quantizes the maxima of NF4's blocks too, as QLoRA does."""
    return _quantize(model, bits, device, double)[0]


def check(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: list[str],
    *,
    bits: int,
    device: str = "cpu",
    double: bool = True,
) -> tuple[BackendResult, float]:
    found, library_model = _quantize(model, bits, device, double)
    ours = copy.deepcopy(model).to(device)
    found.put_into(ours)
    return found, logit_difference(ours, library_model, tokenizer, texts[0])


def _quantize(model: torch.nn.Module, bits: int, device: str, double: bool) -> tuple[BackendResult, torch.nn.Module]:
    if bits not in (4, 8):
        raise BadOption(f"bitsandbytes has 4 bits (NF4) and 8 (LLM.int8), not {bits}")
    library_model = copy.deepcopy(model)
    weights: dict[str, torch.Tensor] = {}
    stored: dict[str, float] = {}
    for name, module, transposed in list(_converted(library_model)):
        matrix = module.weight.data.T if transposed else module.weight.data
        layer, back, size = _nf4(matrix, device, double) if bits == 4 else _int8(matrix, device)
        layer.bias = module.bias
        library_model.set_submodule(name, layer.to(device))
        weights[f"{name}.weight"] = back.T.contiguous() if transposed else back
        stored[f"{name}.weight"] = size
    if bits == 4:
        title = "NF4, double quantization" if double else "NF4"
        settings = f"blocks of {BLOCK_SIZE}, maxima in {'8' if double else '32'} bits"
    else:
        title, settings = "LLM.int8", "rows, maxima in 32 bits; inputs are not rounded here"
    found = BackendResult(
        name=title,
        settings=f"bitsandbytes, {settings}, no text read",
        weights=weights,
        bits=stored,
        left_alone=matrices_besides(model, weights),
    )
    return found, library_model.to(device)


def _converted(model: torch.nn.Module) -> Iterator[tuple[str, Any, bool]]:
    """The layers that transformers converts, by name, and whether their weights are stored transposed."""
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    kept = get_keys_to_not_convert(model)
    for name, module in model.named_modules():
        if (isinstance(module, Conv1D) or type(module) is torch.nn.Linear) and should_convert_module(name, kept):
            yield name, module, isinstance(module, Conv1D)


def _nf4(matrix: torch.Tensor, device: str, double: bool) -> tuple[Any, torch.Tensor, float]:
    """The library's layer, its weights dequantized, and their size."""
    import bitsandbytes as bnb

    outputs, inputs = matrix.shape
    layer = bnb.nn.Linear4bit(inputs, outputs, False, matrix.dtype, compress_statistics=double, quant_type="nf4")
    layer.weight = bnb.nn.Params4bit(
        matrix.contiguous(), requires_grad=False, compress_statistics=double, quant_type="nf4", module=layer
    )
    layer.to(device)
    codes, state = layer.weight.data, layer.weight.quant_state
    # Before any forward pass: on the CPU the first one repacks the codes in place.
    back = bnb.functional.dequantize_4bit(codes, state).cpu()
    nested = (state.state2.absmax, state.offset) if double else ()
    return layer, back, stored_bits(codes, state.absmax, *nested)


def _int8(matrix: torch.Tensor, device: str) -> tuple[Any, torch.Tensor, float]:
    """As `_nf4`."""
    import bitsandbytes as bnb

    outputs, inputs = matrix.shape
    layer = bnb.nn.Linear8bitLt(inputs, outputs, False, has_fp16_weights=False, threshold=OUTLIER_THRESHOLD)
    layer.weight = bnb.nn.Int8Params(matrix.contiguous(), requires_grad=False, has_fp16_weights=False)
    layer.to(device)
    codes, maxima = layer.weight.CB, layer.weight.SCB
    back = bnb.functional.int8_vectorwise_dequant(codes, maxima).to(matrix.dtype).cpu()
    return layer, back, stored_bits(codes, maxima)


BACKENDS = (
    Backend(
        "nf4",
        "NF4 of bitsandbytes: the code of QLoRA in blocks of 64, maxima quantized too.",
        library="bitsandbytes",
        extra="bitsandbytes",
        bits=(4,),
        reads_text=False,
        run=quantize,
    ),
    Backend(
        "bnb-int8",
        "LLM.int8 of bitsandbytes: rows to 8 bits; what it does to inputs at run time is left out.",
        library="bitsandbytes",
        extra="bitsandbytes",
        bits=(8,),
        reads_text=False,
        run=quantize,
    ),
)
