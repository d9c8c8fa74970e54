"""The header of a GGUF file: its metadata and the table of its tensors, checked against the size of the file before any library reads it."""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laaciq.engine.input_files import Refusal, require_file
from laaciq.errors import BrokenModel
from laaciq.models.gguf_file import import_gguf

_REFUSAL = Refusal(BrokenModel, "the file is not a GGUF model, or it is damaged; copy or convert it again")
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# By the number of the type: unsigned and signed integers, floats and truth values; 8 is a string and 9 a list.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _LIST = 8, 9
# A vocabulary has fewer entries, and a chat template fewer bytes.
_LONGEST_LIST, _LONGEST_STRING = 2**24, 2**24
_MOST_DIMENSIONS = 4


class _Damaged(Exception):
    """A problem, in words that follow the name of the file in a sentence."""


@dataclass(frozen=True)
class GgufHeader:
    """Metadata by key, for lists only their lengths; and the shapes of tensors by name, outputs first."""

    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return self.metadata["general.architecture"]

    @property
    def blocks(self) -> int:
        return self.metadata[f"{self.architecture}.block_count"]


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of a GGUF file. An error unless every key, type, length and offset is possible, and the architecture and the number of
    blocks are given.
    """
    require_file(path, _REFUSAL)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _header(_Cursor(content))
    except OSError as error:
        raise _REFUSAL.of(path, f"cannot be read ({error.strerror})") from None
    except (_Damaged, ValueError) as error:  # an empty file cannot be mapped: a ValueError
        raise _REFUSAL.of(path, str(error)) from None


@dataclass
class _Cursor:
    """Reads one value after the other, never beyond the end."""

    content: mmap.mmap
    place: int = 0

    def take(self, count: int) -> bytes:
        if self.place + count > len(self.content):
            raise _Damaged("ends within its header")
        self.place += count
        return self.content[self.place - count : self.place]

    def scalar(self, form: str) -> Any:
        (value,) = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        if length > _LONGEST_STRING:
            raise _Damaged(f"has a string of {length} bytes in its header")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise _Damaged("has a string in its header that is not UTF-8") from None

    def value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            number = self.scalar(_SCALARS[kind])
            if isinstance(number, float) and not math.isfinite(number):
                raise _Damaged(f"has NaN or infinity for {key}")
            return number
        if kind == _STRING:
            return self.string()
        if kind != _LIST:
            raise _Damaged(f"has a value of the unknown type {kind} for {key}")
        return self.list_length(key)

    def list_length(self, key: str) -> int:
        kind, length = self.scalar("I"), self.scalar("Q")
        if length > _LONGEST_LIST:
            raise _Damaged(f"has a list of {length} entries for {key}")
        if kind in _SCALARS:
            self.take(length * struct.calcsize(f"<{_SCALARS[kind]}"))
        elif kind == _STRING:
            for _ in range(length):
                self.string()
        else:
            raise _Damaged(f"has a list of the unknown type {kind} for {key}")
        return length


def _header(cursor: _Cursor) -> GgufHeader:
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise _Damaged("does not begin with GGUF")
    version = cursor.scalar("I")
    if version not in _VERSIONS:
        raise _Damaged(
            f"has version {version} of the format; versions {' and '.join(map(str, _VERSIONS))} are supported"
        )
    tensors, keys = cursor.scalar("Q"), cursor.scalar("Q")
    header = GgufHeader()
    for _ in range(keys):
        key = cursor.string()
        if key in header.metadata:
            raise _Damaged(f"has the key {key!r} twice")
        header.metadata[key] = cursor.value(cursor.scalar("I"), key)
    ends = [_tensor_end(cursor, header) for _ in range(tensors)]
    alignment = header.metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 8 or alignment % 8:
        raise _Damaged(f"has general.alignment {alignment!r}")
    begin = -(-cursor.place // alignment) * alignment
    if begin + max(ends, default=0) > len(cursor.content):
        raise _Damaged("is cut short: it ends before its last tensor")
    _require_described(header)
    return header


def _tensor_end(cursor: _Cursor, header: GgufHeader) -> int:
    """Record one tensor, and return the end of its data, relative to the beginning of all data."""
    gguf = import_gguf()
    name, dimensions = cursor.string(), cursor.scalar("I")
    if name in header.tensors:
        raise _Damaged(f"has the tensor {name!r} twice")
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise _Damaged(f"has {dimensions} dimensions for the tensor {name!r}")
    shape = [cursor.scalar("Q") for _ in range(dimensions)]
    kind, offset = cursor.scalar("I"), cursor.scalar("Q")
    try:
        block, stored = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    except (KeyError, ValueError):
        raise _Damaged(f"has the unknown type {kind} for the tensor {name!r}") from None
    if not all(shape) or shape[0] % block:
        raise _Damaged(f"has the shape {shape} for the tensor {name!r}, which does not divide into blocks of {block}")
    header.tensors[name] = tuple(reversed(shape))
    return offset + math.prod(shape) // block * stored


def _require_described(header: GgufHeader) -> None:
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise _Damaged("does not say which architecture it is (general.architecture)")
    blocks = header.metadata.get(f"{architecture}.block_count")
    if isinstance(blocks, bool) or not isinstance(blocks, int) or not 1 <= blocks <= max(1, len(header.tensors)):
        raise _Damaged(f"has {len(header.tensors)} tensors and {architecture}.block_count {blocks!r}")
