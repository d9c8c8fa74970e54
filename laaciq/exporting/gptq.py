"""`gptq` in GPTQModel's layout: the parts of a matrix, and the configuration with a `dynamic` table for mixed precision."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from laaciq.exporting.carrying import CarriedMatrix, Layout, pack_words
from laaciq.planning.runtimes import fused_name

# GPTQModel has 6 bits in a layout that nothing else reads: they are stored in 8.
BITS = (2, 3, 4, 8)
GROUPS = (16, 32, 64, 128, 256, 512, 1024)
# Codes and zero points fill whole words.
MULTIPLE = 32
# The first version, which every reader knows, stores zero points less one and so has none for 0; symmetric grids never need it.
_FIRST, _SECOND = "gptq", "gptq_v2"


def pack_parts(matrix: CarriedMatrix, config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """All parts with inputs first: codes packed along inputs, zero points along outputs."""
    bits, inputs = matrix.layout.bits, matrix.codes.shape[1]
    zeros = matrix.zeros - 1 if config["checkpoint_format"] == _FIRST else matrix.zeros
    return {
        "qweight": pack_words(matrix.codes, bits).t().contiguous(),
        "qzeros": pack_words(zeros.t(), bits),
        "scales": matrix.scales.t().contiguous(),
        "g_idx": (torch.arange(inputs) // (matrix.layout.group_size or inputs)).to(torch.int32),
    }


def quantization_config(layouts: Mapping[str, Layout], left: Sequence[str]) -> dict[str, Any]:
    """The most common layout for all layers, and a table of those that differ; `left` are linear layers that stay in 16 bits."""
    common = Counter(layouts.values()).most_common(1)[0][0]
    dynamic: dict[str, dict[str, Any]] = {f"-:^{re.escape(layer)}$": {} for layer in left}
    differing = {layer: layout for layer, layout in layouts.items() if layout != common}
    # vLLM looks for the layers that it fuses under names of its own. If their parts differ, it loads none of them.
    dynamic |= {f"-:^{re.escape(layer)}$": {} for layer in _left_fused(layouts, left)}
    differing |= {fused_name(layer): layout for layer, layout in differing.items()}
    dynamic |= {f"+:^{re.escape(layer)}$": _settings(layout) for layer, layout in differing.items()}
    return {
        "quant_method": "gptq",
        "checkpoint_format": _version(layouts),
        **_settings(common),
        "desc_act": False,
        "lm_head": False,
        "pack_dtype": "int32",
        "dynamic": dynamic or None,
    }


def _left_fused(layouts: Mapping[str, Layout], left: Sequence[str]) -> list[str]:
    """vLLM's names of the layers all parts of which stay in 16 bits."""
    partly = {fused_name(layer) for layer in layouts}
    return [name for name in dict.fromkeys(map(fused_name, left)) if name not in partly and name not in left]


def notes(layouts: Mapping[str, Layout]) -> list[str]:
    """Notes for users of the export."""
    if _version(layouts) == _SECOND:
        return [
            f"Zero points are in the format's second version, {_SECOND}, which GPTQModel reads and older readers do not."
        ]
    return []


def _version(layouts: Mapping[str, Layout]) -> str:
    return _FIRST if all(layout.symmetric for layout in layouts.values()) else _SECOND


def _settings(layout: Layout) -> dict[str, Any]:
    return {"bits": layout.bits, "group_size": layout.group_size or -1, "sym": layout.symmetric}
