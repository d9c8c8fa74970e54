"""optimum-quanto's `quantize` and `freeze` with qint8, qint4 or qint2 weights; inputs are not quantized, the output head is left alone.

qint8 has a scale per row. qint4 and qint2 have groups of 128 inputs (of 96, 64 or 32 if those fill a row, else of the row), each with a scale
and a shift in the model's type. In bfloat16, qint4 in groups of 128 is repacked for another kernel, which rounds the shift again. Weights are
read after that, because the library computes with them; sizes are those of the plain packing, which is what it saves.

On the CPU quanto compiles its unpacking on first use. That takes minutes, fails without a compiler, and hangs if an interrupted attempt left
its lock. The same function in torch replaces it meanwhile.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from laaciq.backends.contract import Backend, BackendResult, matrices_besides, stored_bits


def quantize(
    model: torch.nn.Module, tokenizer: Any, texts: list[str], *, bits: int, device: str = "cpu"
) -> BackendResult:
    """Reads no text."""
    with without_compiler():
        return quantize_copy(model, bits, device)[0]


def quantize_copy(model: Any, bits: int, device: str) -> tuple[BackendResult, torch.nn.Module]:
    """The result, and the copy of the model that the library quantized."""
    from optimum.quanto import freeze, qtypes
    from optimum.quanto import quantize as quanto_quantize

    library_model = copy.deepcopy(model).to(device)
    head = library_model.get_output_embeddings()
    names = [
        name for name, module in library_model.named_modules() if type(module) is torch.nn.Linear and module is not head
    ]
    # Without names quanto would take all layers.
    if names:
        quanto_quantize(library_model, weights=qtypes[f"qint{bits}"], include=names)
        freeze(library_model)
    layers = {f"{name}.weight": library_model.get_submodule(name) for name in names}
    result = BackendResult(
        settings=f"{'rows, symmetric' if bits == 8 else 'groups of 128, affine'}, no text read",
        weights={name: layer.weight.dequantize().detach().cpu() for name, layer in layers.items()},
        bits={name: _size(layer.weight) for name, layer in layers.items()},
        left_alone=matrices_besides(model, layers),
    )
    return result, library_model


def _size(weight: Any) -> float:
    saved: dict[str, torch.Tensor] = {}
    weight.save_to_state_dict(saved, "", keep_vars=False)
    return stored_bits(*saved.values())


def _unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.cat([(packed >> shift) & (2**bits - 1) for shift in range(0, 8, bits)])


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    from optimum.quanto.library.extensions import get_extension

    extension = get_extension("quanto_cpp")
    compiled = extension._lib
    if compiled is None:
        extension._lib = SimpleNamespace(unpack=_unpack)
    try:
        yield
    finally:
        extension._lib = compiled


BACKENDS = (
    Backend(
        "quanto",
        "optimum-quanto: groups of 128 with a scale and a shift, at 8 bits rows.",
        library="optimum.quanto",
        extra="quanto",
        bits=(2, 4, 8),
        reads_text=False,
        run=quantize,
    ),
)
