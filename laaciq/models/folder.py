"""The files of a model: a folder, a GGUF file, a hub name or `reference`, resolved to files on this machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laaciq import reference
from laaciq.engine.input_files import file_inside, is_file, is_folder, is_there, require_file
from laaciq.engine.json_input import read_object
from laaciq.errors import BrokenModel
from laaciq.models.configuration import CONFIG, COPY_AGAIN, ModelConfiguration, read_configuration
from laaciq.options import CHECKPOINT_METHOD, REFERENCE

_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "README.md"]
# What transformers reads of a folder, beside the weights.
_SETTINGS = (".json", ".model", ".txt", ".jinja")
_TEMPLATES = "additional_chat_templates"
# Parts of a model that transformers would load in place of all others.
_DISTRIBUTED = "shard-[0-9][0-9][0-9][0-9][0-9]-model-*-of-*.safetensors"
# Adapters are loaded on top of another model, which they name.
_ADAPTER = "adapter_config.json"
_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLED, _PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
# Files up to this size are hashed whole; of larger ones the ends, the size and the modification time.
_HASHED_WHOLE = 64 * 2**20
_HASHED_END = 2**20


@dataclass(frozen=True)
class ModelFolder:
    """A model on this machine. `name` is the name that the user gave; `gguf_file` is set for GGUF input."""

    name: str
    path: Path
    gguf_file: str | None = None

    @property
    def weight_files(self) -> list[Path]:
        """The weight files that transformers reads; an error if a shard in the index is missing."""
        if self.gguf_file is not None:
            return [require_file(self.path / self.gguf_file, COPY_AGAIN)]
        shards = sorted(set(self.indexed.values()))
        if not shards and is_there(self.path / _WHOLE):
            shards = [self.path / _WHOLE]
        files = shards or sorted(self.path.glob("*.safetensors")) or self._pickled
        if not files:
            raise BrokenModel(f"{self.path} has no weights: expected {_WHOLE} or its shards")
        return [require_file(file, COPY_AGAIN, within=self.path) for file in files]

    @property
    def indexed(self) -> dict[str, Path]:
        """The file of every tensor, from the index of shards; empty if there is no index."""
        shards = self._shards(_INDEX, ".safetensors")
        if shards and is_there(self.path / _WHOLE) and set(shards.values()) != {self.path / _WHOLE}:
            raise BrokenModel(f"{self.path} has {_WHOLE} and an index of other shards: remove one of the two")
        return shards

    @property
    def _pickled(self) -> list[Path]:
        """Weights in torch's format, which transformers loads without running code in them."""
        shards = sorted(set(self._shards(_PICKLED_INDEX, ".bin").values()))
        return [self.path / _PICKLED] if is_there(self.path / _PICKLED) else shards

    def _shards(self, index: str, suffix: str) -> dict[str, Path]:
        path = self.path / index
        if not is_there(path):
            return {}
        where = read_object(path, COPY_AGAIN, within=self.path).get("weight_map")
        if not isinstance(where, dict) or not where:
            raise COPY_AGAIN.of(path, "has no weight_map, which names the shard of every tensor")
        # Checked one by one before they are counted: what is not a string may not be hashable.
        unknown = next((shard for shard in where.values() if not isinstance(shard, str)), None)
        names = set(where.values()) if unknown is None else [unknown]
        files = {shard: file_inside(self.path, shard, COPY_AGAIN, named_in=path) for shard in names}
        for shard in files.values():
            if shard.suffix != suffix:
                raise COPY_AGAIN.of(path, f"names {shard.name!r} as a shard, expected a {suffix} file")
            if not is_there(shard):
                raise COPY_AGAIN.of(self.path, f"is half-written: {shard.name} is missing")
        return {name: files[shard] for name, shard in where.items()}

    @property
    def configuration(self) -> ModelConfiguration | None:
        """The contents of config.json; None for GGUF."""
        return read_configuration(self.path) if self.gguf_file is None else None

    @property
    def quantization(self) -> dict[str, Any] | None:
        """`quantization_config` of config.json; None if the weights are not quantized, and for GGUF."""
        return None if (configuration := self.configuration) is None else configuration.quantization_config

    @property
    def is_ours(self) -> bool:
        """Did laaciq quantize it?"""
        return (self.quantization or {}).get("quant_method") == CHECKPOINT_METHOD

    @property
    def is_plain(self) -> bool:
        """Are its weights stored as they are? Those of GGUF and of quantized checkpoints are dequantized when they are read."""
        return self.gguf_file is None and self.quantization is None

    @property
    def fingerprint(self) -> str:
        """A digest that changes with any file of the model."""
        digest = hashlib.sha256()
        described = [p for p in self.path.glob("*.json") if self.gguf_file is None]
        for path in sorted({*described, *self.weight_files}):
            require_file(path, COPY_AGAIN, within=None if self.gguf_file else self.path)
            digest.update(f"{path.name}:{_file_digest(path)};".encode())
        return digest.hexdigest()


def find_model(source: str | Path) -> ModelFolder:
    """The files of a model by its name. Downloads only a hub model that is not on this machine yet."""
    name = str(source)
    if name == REFERENCE:
        return ModelFolder(name, reference.path())
    path = Path(source)
    if path.suffix == ".gguf" and is_file(path):
        return ModelFolder(name, path.parent, gguf_file=path.name)
    if name and is_folder(path):
        return _checked(ModelFolder(name, path))
    if not name or is_there(path) or path.is_absolute() or name.startswith("."):
        raise BrokenModel(f"no model at {name!r}: give a folder with config.json, a .gguf file, or a hub name")
    return _checked(ModelFolder(name, _download(name)))


def _checked(folder: ModelFolder) -> ModelFolder:
    """The folder; an error if transformers would read a file that is not allowed. Large files are not opened."""
    if not is_there(folder.path / CONFIG):
        raise BrokenModel(f"{folder.name} is not a model folder: it has no {CONFIG}")
    if is_there(folder.path / _ADAPTER):
        raise BrokenModel(f"{folder.name} is an adapter for another model ({_ADAPTER}): merge it into that model first")
    if distributed := next(folder.path.glob(_DISTRIBUTED), None):
        raise BrokenModel(f"{folder.name} is saved in parts of several processes ({distributed.name}): save it whole")
    try:
        present = [*folder.path.iterdir(), *(folder.path / _TEMPLATES).glob("*")]
    except OSError as error:
        raise BrokenModel(f"{folder.name} cannot be listed ({error.strerror}): allow this user to read it") from None
    for path in present:
        if path.suffix in _SETTINGS:
            require_file(path, COPY_AGAIN, within=folder.path)
    configuration = read_configuration(folder.path)
    other_file = (configuration.model_extra or {}).get("transformers_weights")
    if other_file is not None and not folder.is_ours:
        raise COPY_AGAIN.of(
            folder.path / CONFIG, f"names a file for the weights, transformers_weights = {other_file!r}"
        )
    return folder


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise BrokenModel(
            f"no model {name!r}: there is no such folder, and the download from the hub failed ({reason})"
        ) from None


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
