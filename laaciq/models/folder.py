"""The files of a model: a folder, a GGUF file, a hub name or `reference`, resolved to files on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from laaciq import reference
from laaciq.errors import BrokenModel
from laaciq.options import REFERENCE

_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "README.md"]
# Files up to this size are hashed whole; of larger ones the ends, the size and the modification time.
_HASHED_WHOLE = 64 * 2**20
_HASHED_END = 2**20
# Pages of a mapped file count as ours until it is closed: it is reopened after this many bytes.
_MAPPED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class ModelFolder:
    """A model on this machine. `name` is the name that the user gave; `gguf_file` is set for GGUF input."""

    name: str
    path: Path
    gguf_file: str | None = None

    @property
    def weight_files(self) -> list[Path]:
        """The files that hold the weights; every shard that the index names must be there."""
        if self.gguf_file is not None:
            return [self.path / self.gguf_file]
        index = self.path / "model.safetensors.index.json"
        if index.exists():
            shards = sorted(set(_read_json(index).get("weight_map", {}).values()))
            missing = [shard for shard in shards if not (self.path / shard).exists()]
            if missing or not shards:
                raise BrokenModel(f"{self.path} is half-written: {missing[0] if missing else 'every shard'} is missing")
            return [self.path / shard for shard in shards]
        files = sorted(self.path.glob("*.safetensors")) or sorted(self.path.glob("pytorch_model*.bin"))
        if not files:
            raise BrokenModel(f"{self.path} holds no weights: expected model.safetensors or its shards")
        return files

    @property
    def quantization(self) -> dict[str, Any] | None:
        """`quantization_config` of config.json; None if the weights are not quantized, and for GGUF."""
        settings = None if self.gguf_file else _read_json(self.path / "config.json").get("quantization_config")
        if settings is not None and not isinstance(settings, dict):
            raise BrokenModel(
                f"{self.path / 'config.json'} has a quantization_config that is no JSON object: copy it again"
            )
        return settings

    @property
    def fingerprint(self) -> str:
        """Changes when any file of the model changes."""
        digest = hashlib.sha256()
        described = [p for p in self.path.glob("*.json") if self.gguf_file is None]
        for path in sorted({*described, *self.weight_files}):
            digest.update(f"{path.name}:{_file_digest(path)};".encode())
        return digest.hexdigest()


def find_model(source: str | Path) -> ModelFolder:
    """Resolve the name of a model to its files; downloads only a hub model that is not on this machine yet."""
    name = str(source)
    if name == REFERENCE:
        return ModelFolder(name, reference.path())
    path = Path(source)
    if path.suffix == ".gguf" and path.is_file():
        return ModelFolder(name, path.parent, gguf_file=path.name)
    if path.is_dir():
        if not (path / "config.json").exists():
            raise BrokenModel(f"{name} is no model folder: it has no config.json")
        _read_json(path / "config.json")
        return ModelFolder(name, path)
    if path.exists() or path.is_absolute() or name.startswith("."):
        raise BrokenModel(f"no model at {name}: give a folder with config.json, a .gguf file, or a hub name")
    return ModelFolder(name, _download(name))


def stream_tensors(folder: ModelFolder) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a safetensors model, one at a time, mapped and not copied, without building the model."""
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


def tensor_files(folder: ModelFolder) -> dict[str, Path]:
    """The file of every tensor of a safetensors model."""
    where: dict[str, Path] = {}
    for path in folder.weight_files:
        with _opened(path) as file:
            where |= dict.fromkeys(file.keys(), path)
    return where


def read_tensors(where: Mapping[str, Path], names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Some tensors by name, mapped and not copied."""
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


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).split("\n")[0]
        raise BrokenModel(
            f"no model {name!r}: there is no such folder, and the download from the hub failed ({reason})"
        ) from None


def _read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BrokenModel(f"{path} is not valid JSON ({error}); the checkpoint is half-written") from None


def _file_digest(path: Path) -> str:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _HASHED_WHOLE:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(f"{size}:{path.stat().st_mtime_ns}".encode())
        digest.update(file.read(_HASHED_END))
        file.seek(-_HASHED_END, 2)
        digest.update(file.read())
        return digest.hexdigest()
