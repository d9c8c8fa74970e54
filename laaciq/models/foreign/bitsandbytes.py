"""bitsandbytes checkpoints: 4-bit codes of a table (NF4, FP4) scaled by blocks, or LLM.int8()'s integers scaled by rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from laaciq.engine.input_files import Refusal
from laaciq.engine.json_input import parse_object
from laaciq.errors import BrokenModel
from laaciq.models.foreign.parts import REMEDY, Parts

_STATES = ("weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4")
_INT8_NOTE = "LLM.int8() also rounds activations as it runs: only its weights are measured"


class BitsAndBytes:
    """Every layer stores a description of its format; the settings only decide about the note for the user."""

    quantized_parts: tuple[str, ...] = (
        *("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map", *_STATES),
        *("SCB", "weight_format"),
    )
    shared_parts: tuple[str, ...] = ("weight",)
    claims_layers = True

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.notes: tuple[str, ...] = (_INT8_NOTE,) if settings.get("load_in_8bit") else ()

    def weights(self, parts: Parts) -> torch.Tensor:
        """(outputs, inputs) in float32."""
        return _int8(parts) if "SCB" in parts or "weight_format" in parts else _four_bits(parts)


def _int8(parts: Parts) -> torch.Tensor:
    """W[o, i] = q[o, i]·SCB[o]/127, SCB the largest magnitude of the row."""
    codes = parts.integers("weight", (None, None), torch.int8)
    if "weight_format" in parts and int(parts.integers("weight_format").max()) != 0:
        raise BrokenModel(f"{parts.layer}.weight is tiled for one kind of GPU: save it with bitsandbytes 0.45 or later")
    return codes.to(torch.float32) * (parts.numbers("SCB", (len(codes),)) / 127)[:, None]


def _four_bits(parts: Parts) -> torch.Tensor:
    """W = table[code]·absmax, absmax of each block of weights, row after row."""
    state = _state(parts)
    shape: Any = state.get("shape")
    block: Any = state.get("blocksize")
    sizes = [*shape, block] if isinstance(shape, list) and len(shape) == 2 else [None]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise BrokenModel(f"{parts.layer} has shape {shape} and blocks of {block} in its quant_state: {REMEDY}")
    count = shape[0] * shape[1]
    # Sharded training stores the bytes as a floating type.
    stored = parts.take("weight").contiguous().view(torch.uint8).flatten()
    if len(stored) != -(-count // 2):
        raise BrokenModel(f"{parts.layer}.weight has {len(stored)} bytes, its shape needs {-(-count // 2)}: {REMEDY}")
    table = parts.numbers("weight.quant_map", (16,))
    absmax = _absmax(parts, state, -(-count // block))
    # The high half of a byte comes first.
    values = table[torch.stack([stored >> 4, stored & 15], dim=1).flatten()[:count].int()]
    return (values * absmax.repeat_interleave(block)[:count]).reshape(shape)


def _absmax(parts: Parts, state: Mapping[str, Any], blocks: int) -> torch.Tensor:
    """As stored; or, doubly quantized, table'[code']·absmax' + offset."""
    if "weight.nested_absmax" not in parts and "weight.nested_quant_map" not in parts:
        return parts.numbers("weight.absmax", (blocks,))
    block, offset = state.get("nested_blocksize"), state.get("nested_offset")
    if not isinstance(block, int) or block < 1 or not isinstance(offset, float | int):
        raise BrokenModel(f"{parts.layer} has no nested_blocksize or nested_offset in its quant_state: {REMEDY}")
    codes = parts.integers("weight.absmax", (blocks,), torch.uint8).int()
    table = parts.numbers("weight.nested_quant_map", (256,))
    scales = parts.numbers("weight.nested_absmax", (-(-blocks // block),))
    return table[codes] * scales.repeat_interleave(block)[:blocks] + offset


def _state(parts: Parts) -> dict[str, Any]:
    """The settings of the layer, stored as JSON in a tensor of bytes."""
    name = next((name for name in _STATES if name in parts), _STATES[0])
    stored = parts.integers(name, (None,), torch.uint8)
    text = bytes(stored.tolist()).decode(errors="replace")
    return parse_object(text, f"{parts.layer}.{name}", Refusal(BrokenModel, REMEDY))
