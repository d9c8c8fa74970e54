"""Quantized layers in their packed form: on disk or in memory, and unpacked one at a time when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import torch
from safetensors.torch import load_file, save_file

from laaciq.engine.gpu_memory import room_for_tensors
from laaciq.engine.pinned_memory import pinned_copies
from laaciq.engine.store import Store
from laaciq.quantization.grid import Layers, QuantizedMatrix
from laaciq.quantization.plan import TensorPlan
from laaciq.quantization.stored import part_shapes, read_stored, stored_tensors

_FILE = "layers.safetensors"
# Begins the names of rounded layers in a store.
ROUNDED = "rounded"


@dataclass(frozen=True)
class StoredLayers(Sequence[tuple[TensorPlan, QuantizedMatrix]]):
    """Layers by the name of their tensor, in order, with the packed parts of each. They are unpacked on `device`."""

    plans: dict[str, TensorPlan]
    parts: dict[str, dict[str, torch.Tensor]]
    device: torch.device

    @classmethod
    def of(cls, layers: Iterable[tuple[TensorPlan, QuantizedMatrix]], device: torch.device) -> StoredLayers:
        """These layers, packed in host memory; as they are if they are stored already."""
        if isinstance(layers, StoredLayers):
            return layers
        plans: dict[str, TensorPlan] = {}
        parts: dict[str, dict[str, torch.Tensor]] = {}
        for tensor, stored in packed(layers):
            plans[tensor.name], parts[tensor.name] = tensor, stored
        return cls(plans, parts, device)

    def matrix(self, name: str) -> QuantizedMatrix:
        return read_stored(self.packed(name), self.plans[name])

    def packed(self, name: str) -> dict[str, torch.Tensor]:
        """The packed parts of a layer, on the device."""
        return {part: stored.to(self.device, non_blocking=True) for part, stored in self.parts[name].items()}

    @classmethod
    def joined(cls, several: Iterable[StoredLayers], device: torch.device) -> StoredLayers:
        """The layers of several, in order."""
        plans: dict[str, TensorPlan] = {}
        parts: dict[str, dict[str, torch.Tensor]] = {}
        for layers in several:
            plans |= layers.plans
            parts |= layers.parts
        return cls(plans, parts, device)

    def nearer(self, *, beside: float) -> StoredLayers:
        """With the packed parts on the device if they fit there `beside` so many bytes, else in pinned memory; on a CPU, as they are."""
        device = self.device
        if device.type != "cuda":
            return self
        stored = [part for parts in self.parts.values() for part in parts.values()]
        size = sum(part.nbytes for part in stored)
        fits = size + beside <= room_for_tensors()
        nearer = (part.to(device) for part in stored) if fits else pinned_copies(stored)
        return replace(self, parts={name: {part: next(nearer) for part in parts} for name, parts in self.parts.items()})

    @property
    def near(self) -> bool:
        """Are the packed parts on the device?"""
        return all(parts["codes"].device.type == self.device.type for parts in self.parts.values())

    def with_scales(self, scales: Mapping[str, torch.Tensor]) -> StoredLayers:
        """The same codes with other scales, by name of the tensor."""
        changed = {name: self.parts[name] | {"scales": moved.cpu()} for name, moved in scales.items()}
        return replace(self, parts=self.parts | changed)

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self) -> Iterator[tuple[TensorPlan, QuantizedMatrix]]:
        return ((tensor, self.matrix(name)) for name, tensor in self.plans.items())

    @overload
    def __getitem__(self, index: int) -> tuple[TensorPlan, QuantizedMatrix]: ...

    @overload
    def __getitem__(self, index: slice) -> Layers: ...

    def __getitem__(self, index: int | slice) -> tuple[TensorPlan, QuantizedMatrix] | Layers:
        names = list(self.plans)[index]
        if isinstance(names, str):
            return self.plans[names], self.matrix(names)
        return [(self.plans[name], self.matrix(name)) for name in names]


def packed(
    layers: Iterable[tuple[TensorPlan, QuantizedMatrix]],
) -> Iterator[tuple[TensorPlan, dict[str, torch.Tensor]]]:
    """The layers one at a time, as they are stored."""
    if isinstance(layers, StoredLayers):
        return ((tensor, layers.parts[name]) for name, tensor in layers.plans.items())
    return ((tensor, stored_tensors(matrix, tensor)) for tensor, matrix in layers)


@dataclass(frozen=True)
class RoundedBlocks:
    """Layers that are kept in a store block by block as they are rounded, so that a command that was killed goes on with the next block.
    `key` identifies everything that decides the layers.
    """

    store: Store
    key: str

    def block(self, index: int, tensors: Sequence[TensorPlan], device: torch.device) -> StoredLayers | None:
        """The layers of a block if they are there, else None."""
        if not tensors or not self.store.valid(self._name(index), self.key):
            return None
        return self._read(index, tensors, device)

    def keep(self, index: int, layers: StoredLayers) -> StoredLayers:
        """Keep the layers of a block. Returns them as they lie in the store, which takes no memory."""
        tensors = {f"{tensor}.{part}": value for tensor, parts in layers.parts.items() for part, value in parts.items()}
        self.store.folder(self._name(index), self.key, lambda folder: _save(tensors, folder))
        return self._read(index, list(layers.plans.values()), layers.device)

    def drop(self) -> None:
        self.store.drop(f"{ROUNDED}/{self.key[:16]}/")

    def _read(self, index: int, tensors: Sequence[TensorPlan], device: torch.device) -> StoredLayers:
        stored = load_file(self.store.folder(self._name(index), self.key, lambda folder: None) / _FILE)
        parts = {
            tensor.name: {part: stored[f"{tensor.name}.{part}"] for part in part_shapes(tensor)} for tensor in tensors
        }
        return StoredLayers({tensor.name: tensor for tensor in tensors}, parts, device)

    def _name(self, index: int) -> str:
        return f"{ROUNDED}/{self.key[:16]}/{index}"


def _save(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / _FILE)
