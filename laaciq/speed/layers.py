"""What the layers of a loaded model hold in memory, and which kernels they run on."""

from __future__ import annotations

from collections import Counter

import torch

from laaciq.quantization.layers import QuantizedLinear, why_dequantized
from laaciq.quantization.products import most_tokens
from laaciq.speed.results import Kernels


def weight_bytes(module: torch.nn.Module) -> int:
    """Parameters, buffers and what kernels hold beside them. The scales in use are among those."""
    held: list[torch.Tensor] = [*module.parameters()]
    held += [tensor for name, tensor in module.named_buffers() if not name.endswith("scales_in_use")]
    for layer in _quantized_layers(module):
        if layer.kernel == "int4":
            held += layer.kernel_scales.values()
    return sum(tensor.nbytes for tensor in held)


def kernels_of(module: torch.nn.Module) -> Kernels | None:
    """The kernels that the layers of one of our checkpoints run on; None for other models."""
    layers = _quantized_layers(module)
    counts = Counter(layer.kernel for layer in layers)
    prepared = [(layer.plan, *layer.prepared_for) for layer in layers if layer.prepared_for]
    if not prepared:
        return None
    return Kernels(
        triton=counts["triton"],
        int4=counts["int4"],
        dequantized=counts["dequantized"],
        reasons=dict(Counter(filter(None, (why_dequantized(*layer) for layer in prepared)))),
        few_tokens=most_tokens(prepared[0][1]) if counts["triton"] else None,
    )


def _quantized_layers(module: torch.nn.Module) -> list[QuantizedLinear]:
    return [layer for layer in module.modules() if isinstance(layer, QuantizedLinear)]
