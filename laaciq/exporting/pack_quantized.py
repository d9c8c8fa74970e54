"""`compressed-tensors`, pack-quantized: the parts of a matrix, and the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from laaciq.exporting.carrying import CarriedMatrix, Layout, pack_words

# Bit widths that the library packs and we support.
BITS = (2, 3, 4, 6, 8)
# At other widths codes straddle words, which the library reads since this version.
_WHOLE_BITS, _ACROSS_SINCE = (2, 4, 8), "0.18"


def pack_parts(matrix: CarriedMatrix, config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The parts of a matrix. Codes are packed along inputs, zero points along outputs. The library's codes are signed and stored with
    2^(B−1) added, like ours.
    """
    parts = {
        "weight_packed": pack_words(matrix.codes, matrix.layout.bits),
        "weight_scale": matrix.scales,
        "weight_shape": torch.tensor(matrix.codes.shape),
    }
    if not matrix.layout.symmetric:
        parts["weight_zero_point"] = pack_words(matrix.zeros.t(), matrix.layout.bits).t().contiguous()
    return parts


def quantization_config(layouts: Mapping[str, Layout], left: Sequence[str]) -> dict[str, Any]:
    """One group of layers per layout; `left` are linear layers that stay in 16 bits."""
    groups = {}
    for number, layout in enumerate(dict.fromkeys(layouts.values())):
        weights = {
            "num_bits": layout.bits,
            "type": "int",
            "symmetric": layout.symmetric,
            "strategy": "channel" if layout.group_size is None else "group",
            "group_size": layout.group_size,
            "dynamic": False,
        }
        targets = [layer for layer, stored in layouts.items() if stored == layout]
        groups[f"group_{number}"] = {"format": "pack-quantized", "targets": targets, "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": list(left),
    }


def notes(layouts: Mapping[str, Layout]) -> list[str]:
    """Notes for users of the export."""
    if odd := sorted({layout.bits for layout in layouts.values()} - set(_WHOLE_BITS)):
        words = " and ".join(map(str, odd))
        return [f"{words} bits are read by compressed-tensors {_ACROSS_SINCE} and later."]
    return []
