"""The weights of a model in safetensors files: their headers, and tensors one at a time, memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from laaciq.errors import BrokenModel
from laaciq.models.configuration import COPY_AGAIN
from laaciq.models.folder import ModelFolder

# Pages of a mapped file count as ours until it is closed: it is reopened after this many bytes.
_MAPPED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class TensorHeader:
    """The header of one tensor; `dtype` in the words of safetensors, such as BF16."""

    file: Path
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_floating(self) -> bool:
        return self.dtype.startswith(("F", "BF"))


def tensor_headers(folder: ModelFolder) -> dict[str, TensorHeader]:
    """The header of every tensor of a safetensors model, by name, each in the file that the index names."""
    headers = headers_of(folder.weight_files)
    for name, path in folder.indexed.items():
        if name not in headers or headers[name].file != path:
            raise COPY_AGAIN.of(folder.path, f"lacks {name} in {path.name}, where its index places it")
    return headers


def headers_of(files: Iterable[Path]) -> dict[str, TensorHeader]:
    """The header of every tensor of some files, by name; an error if two files have the same."""
    headers: dict[str, TensorHeader] = {}
    for path in files:
        with _opened(path) as file:
            for name in list(file.keys()):
                if name in headers:
                    raise COPY_AGAIN.of(path, f"has {name}, and so does {headers[name].file.name}")
                part = file.get_slice(name)
                headers[name] = TensorHeader(path, tuple(part.get_shape()), str(part.get_dtype()))
    return headers


def stream_tensors(folder: ModelFolder) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a safetensors model, one at a time, without building the model."""
    tensor_headers(folder)
    for path in folder.weight_files:
        with _opened(path) as file:
            names = list(file.keys())[::-1]
        while names:
            mapped = 0
            with _opened(path) as file:
                while names and mapped < _MAPPED_BYTES:
                    name = names.pop()
                    tensor = file.get_tensor(name)
                    mapped += tensor.nbytes
                    yield name, tensor


def read_tensors(where: Mapping[str, Path], names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Some tensors by name."""
    tensors = {}
    for name in names:
        with _opened(where[name]) as file:
            tensors[name] = file.get_tensor(name)
    return tensors


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if path.suffix != ".safetensors":
        raise BrokenModel(f"{path} cannot be streamed: convert the model to safetensors first")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise BrokenModel(f"{path} is broken or cut short ({error}); copy it again") from None
