"""Checkpoints of compressed-tensors, which llm-compressor writes: integers, packed or not, and 8-bit floats, scaled by groups or more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from laaciq.errors import BrokenModel
from laaciq.models.foreign.bits import packed_words, unpack_words
from laaciq.models.foreign.grids import affine_weights, groups_in_order
from laaciq.models.foreign.parts import REMEDY, Parts, matches, setting

_FORMATS = ("pack-quantized", "int-quantized", "naive-quantized", "float-quantized")
_REGEX = "re:"
_ACTIVATIONS_NOTE = "the checkpoint also rounds activations as it runs: only its weights are measured"


class CompressedTensors:
    """W[o, i] = s·(q[o, i] − z), s and z those of the tensor, of the output, of the output's group of inputs, or of a block of both.

    Each of the `config_groups` has `targets`: layers' names, patterns, or classes. Of several that match, a name has precedence over a pattern,
    and a pattern over a class. Layers that `ignore` names have a plain weight and are not read here.
    """

    quantized_parts: tuple[str, ...] = (
        *("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx", "weight_global_scale"),
        *("input_scale", "input_zero_point", "input_global_scale"),
    )
    shared_parts: tuple[str, ...] = ("weight",)

    def __init__(self, settings: Mapping[str, Any]) -> None:
        for key in ("sparsity_config", "transform_config"):
            if settings.get(key):
                raise BrokenModel(f"the checkpoint has a {key}, which cannot be read here: save it without")
        self.format = setting(settings, "format", str, "dense")
        groups = setting(settings, "config_groups", dict)
        schemes = [setting(groups, name, dict) for name in groups]
        self.schemes = {target: scheme for scheme in schemes for target in setting(scheme, "targets", list)}
        self.claims_layers = any(scheme.get("weights") for scheme in schemes)
        rounded = settings.get("kv_cache_scheme") or any(scheme.get("input_activations") for scheme in schemes)
        self.notes: tuple[str, ...] = (_ACTIVATIONS_NOTE,) if rounded else ()

    def weights(self, parts: Parts) -> torch.Tensor:
        """(outputs, inputs) in float32."""
        scheme = self._scheme_of(parts)
        stored_as = scheme.get("format") or self.format
        if stored_as not in _FORMATS:
            raise BrokenModel(f"{parts.layer} is stored as {stored_as}: only {', '.join(_FORMATS)} can be read")
        grid = setting(scheme, "weights", dict)
        packed = "weight_packed" in parts or "weight_shape" in parts
        codes = _packed_codes(parts, grid) if packed else _plain_codes(parts)
        outputs, inputs = codes.shape
        tall, wide = _block(grid, outputs, inputs)
        shape = (-(-outputs // tall), -(-inputs // wide))
        ordered = "weight_g_idx" in parts
        group_of = parts.places("weight_g_idx", inputs, shape[1]) if ordered else groups_in_order(inputs, wide)
        scales = _table(parts, "weight_scale", parts.numbers("weight_scale"), shape)
        zeros = _zero_points(parts, grid, shape)
        if packed:
            zeros += 2 ** (setting(grid, "num_bits", int) - 1)  # packed codes are signed ones with this added
        rows = torch.arange(outputs) // tall
        return affine_weights(codes, scales[rows], zeros[rows], group_of)

    def _scheme_of(self, parts: Parts) -> Mapping[str, Any]:
        classes = [kind.__name__ for kind in parts.kind.__mro__]
        patterns = sorted(target for target in self.schemes if target.startswith(_REGEX))
        matching = [target for target in patterns if matches(target.removeprefix(_REGEX), parts.layer)]
        for target in [parts.layer, *matching, *classes]:
            if target in self.schemes:
                return self.schemes[target]
        raise BrokenModel(f"{parts.layer} is quantized, but no group of quantization_config targets it: {REMEDY}")


def _block(grid: Mapping[str, Any], outputs: int, inputs: int) -> tuple[int, int]:
    """How many (outputs, inputs) share a scale."""
    group_size = grid.get("group_size")
    strategy = grid.get("strategy") or ("tensor" if group_size is None else "channel" if group_size < 1 else "group")
    if strategy == "tensor":
        return max(outputs, 1), max(inputs, 1)
    if strategy == "channel":
        return 1, max(inputs, 1)
    sizes = (1, group_size) if strategy == "group" else tuple(grid.get("block_structure") or ())
    if len(sizes) != 2 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise BrokenModel(
            f"quantization_config of config.json has the strategy {strategy!r} with blocks of {sizes}: {REMEDY}"
        )
    return sizes


def _packed_codes(parts: Parts, grid: Mapping[str, Any]) -> torch.Tensor:
    bits = setting(grid, "num_bits", int)
    if bits not in range(1, 9):
        raise BrokenModel(f"{parts.layer} has {bits} bits packed: 1 to 8 can be read")
    outputs, inputs = parts.integers("weight_shape", (2,)).tolist()
    words = parts.integers("weight_packed", (outputs, packed_words(inputs, bits)), torch.int32)
    return unpack_words(words, bits, inputs)


def _plain_codes(parts: Parts) -> torch.Tensor:
    codes = parts.take("weight", (None, None))
    if codes.element_size() != 1:
        raise BrokenModel(f"{parts.layer}.weight is stored as {codes.dtype}: save the model with save_compressed=True")
    return codes


def _zero_points(parts: Parts, grid: Mapping[str, Any], shape: tuple[int, int]) -> torch.Tensor:
    if grid.get("symmetric", True):
        return torch.zeros(shape)
    stored = parts.integers("weight_zero_point")
    if stored.dtype == torch.int32:  # packed down the rows, as codes are along them
        bits, (rows, groups) = setting(grid, "num_bits", int), shape
        words = parts.integers("weight_zero_point", (packed_words(rows, bits), groups))
        return unpack_words(words.t(), bits, rows).t().to(torch.float32) - 2 ** (bits - 1)
    return _table(parts, "weight_zero_point", stored.to(torch.float32), shape)


def _table(parts: Parts, name: str, values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """As (rows, groups): sizes of 1 are not always written."""
    if [size for size in values.shape if size != 1] != [size for size in shape if size != 1]:
        parts.take(name, shape)  # raises the error that names both shapes
    return values.reshape(shape)
