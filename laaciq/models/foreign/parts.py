"""The stored tensors of one layer, and the settings of a checkpoint, both checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import regex
import torch

from laaciq.errors import BrokenModel

REMEDY = "the checkpoint is damaged or half-written; copy it again, or quantize anew"
_PATTERN_SECONDS = 1.0
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Parts:
    """Stored tensors of `layer` by the rest of their names; `kind` is the layer's class in the model."""

    layer: str
    tensors: Mapping[str, torch.Tensor]
    kind: type[torch.nn.Module] = torch.nn.Linear

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def integers(self, name: str, shape: Shape | None = None, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Codes or indices."""
        tensor = self.take(name, shape)
        if tensor.is_floating_point() or dtype not in (None, tensor.dtype):
            expected = "integers" if dtype is None else str(dtype).removeprefix("torch.")
            raise BrokenModel(f"{self.layer}.{name} holds {tensor.dtype}, expected {expected}: {REMEDY}")
        return tensor

    def numbers(self, name: str, shape: Shape | None = None) -> torch.Tensor:
        """Scales and the like, finite, in float32."""
        tensor = self.take(name, shape)
        if not tensor.is_floating_point():
            raise BrokenModel(f"{self.layer}.{name} holds {tensor.dtype}, expected floating point: {REMEDY}")
        tensor = tensor.to(torch.float32)
        if not torch.isfinite(tensor).all():
            raise BrokenModel(f"{self.layer}.{name} has NaN or infinite values: {REMEDY}")
        return tensor

    def places(self, name: str, count: int, below: int) -> torch.Tensor:
        """`count` indices from 0 to below `below`."""
        index = self.integers(name, (count,)).long()
        if count and not 0 <= int(index.min()) <= int(index.max()) < below:
            raise BrokenModel(f"{self.layer}.{name} points outside its {below} groups: {REMEDY}")
        return index

    def take(self, name: str, shape: Shape | None = None) -> torch.Tensor:
        """As stored. `None` within a shape leaves that size open."""
        if name not in self.tensors:
            raise BrokenModel(f"{self.layer}.{name} is missing: {REMEDY}")
        tensor = self.tensors[name]
        stored = tuple(tensor.shape)
        if shape is not None and (
            len(stored) != len(shape)
            or any(size not in (None, actual) for size, actual in zip(shape, stored, strict=True))
        ):
            expected = "×".join("any" if size is None else str(size) for size in shape)
            raise BrokenModel(
                f"{self.layer}.{name} has shape {'×'.join(map(str, stored))}, its settings need {expected}: {REMEDY}"
            )
        return tensor


def setting(settings: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """A value of the quantization settings in config.json, of the type that it must have."""
    value = settings.get(name)
    value = default if value is None else value
    # bool is an int to Python, and no number of bits.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BrokenModel(
            f"quantization_config of config.json has {name} = {value!r}, expected {kind.__name__}: {REMEDY}"
        )
    return value


def matches(pattern: str, name: str) -> bool:
    """Does the regular expression match from the beginning of the name? Some patterns would take forever to say so."""
    try:
        return regex.match(pattern, name, timeout=_PATTERN_SECONDS) is not None
    except (regex.error, TimeoutError) as error:
        reason = "it takes too long to match" if isinstance(error, TimeoutError) else error
        raise BrokenModel(
            f"quantization_config of config.json has the pattern {pattern!r} ({reason}): {REMEDY}"
        ) from None
