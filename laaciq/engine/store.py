"""Stores of results, each valid for exactly what it was computed from; one that is in memory. `run_folder` has the one on disk.

A result is computed again only if its key (a fingerprint of everything that it depends on) has changed or its file was edited.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from laaciq.engine.environment import versions
from laaciq.engine.files import remove
from laaciq.errors import LaaciqError
from laaciq.version import __version__

Result = TypeVar("Result", bound=BaseModel)


def key_of(*parts: object) -> str:
    """Fingerprint of values that JSON can hold, and of the versions of all that computes."""
    return portable_key_of(versions(), *parts)


def portable_key_of(*parts: object) -> str:
    """As `key_of`, with no version but this software's: for results that name the other versions that made them."""
    text = json.dumps([__version__, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Record(NamedTuple):
    """A stored result as JSON, for another process."""

    name: str
    key: str
    text: str


class Store(ABC):
    """Results by name and key. `result` is all that most callers need."""

    @abstractmethod
    def valid(self, name: str, key: str) -> bool:
        """Is the result `name` there, unchanged, and computed from `key`?"""

    @abstractmethod
    def keep(self, name: str, result: BaseModel, key: str) -> None:
        """Keep a result that was computed from `key`."""

    @abstractmethod
    def read(self, name: str, kind: type[Result]) -> Result:
        """A result that is there."""

    @abstractmethod
    def folder(self, name: str, key: str, fill: Callable[[Path], object]) -> Path:
        """Where the folder `name` lies; `fill` writes it, in one step, unless it is there, unchanged, and computed from `key`."""

    @abstractmethod
    def write(self, name: str, content: str | bytes) -> None:
        """Write a text or a picture for people beside the results, such as a report. Without a folder it is dropped."""

    @abstractmethod
    def records(self, beginnings: Sequence[str]) -> list[Record]:
        """The results whose names begin so."""

    @abstractmethod
    def drop(self, beginning: str) -> None:
        """Remove folders whose names begin so: what was kept in case the command is killed, and is not needed any more."""

    def result(self, name: str, kind: type[Result], key: str, compute: Callable[[], Result]) -> Result:
        """The result of that name, read if still valid, else computed and kept."""
        if self.valid(name, key):
            try:
                return self.read(name, kind)
            except (ValidationError, LaaciqError):
                pass  # written by another version of the class: compute it again
        result = compute()
        self.keep(name, result, key)
        return result

    @abstractmethod
    def finish(self) -> None:
        """Note that the command reached its end."""

    @abstractmethod
    def close(self) -> None:
        """Let others write where this store writes. Nothing is kept after it."""


class SubStore(Store):
    """A part of another store: every name is led by `prefix`."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def valid(self, name: str, key: str) -> bool:
        return self._store.valid(f"{self._prefix}/{name}", key)

    def keep(self, name: str, result: BaseModel, key: str) -> None:
        self._store.keep(f"{self._prefix}/{name}", result, key)

    def read(self, name: str, kind: type[Result]) -> Result:
        return self._store.read(f"{self._prefix}/{name}", kind)

    def folder(self, name: str, key: str, fill: Callable[[Path], object]) -> Path:
        return self._store.folder(f"{self._prefix}/{name}", key, fill)

    def write(self, name: str, content: str | bytes) -> None:
        self._store.write(f"{self._prefix}/{name}", content)

    def records(self, beginnings: Sequence[str]) -> list[Record]:
        inside = self._store.records([f"{self._prefix}/{beginning}" for beginning in beginnings])
        return [record._replace(name=record.name.removeprefix(f"{self._prefix}/")) for record in inside]

    def drop(self, beginning: str) -> None:
        self._store.drop(f"{self._prefix}/{beginning}")

    def finish(self) -> None:
        """The whole store is finished, and closed, by whoever opened it."""

    def close(self) -> None:
        pass


class MemoryStore(Store):
    """Keeps results for as long as it lives; folders are temporary."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[str, BaseModel | str]] = {}
        self._folders: dict[str, str] = {}

    @cached_property
    def _temporary(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="laaciq-")

    def valid(self, name: str, key: str) -> bool:
        return self._folders.get(name) == key or (name in self._results and self._results[name][0] == key)

    def keep(self, name: str, result: BaseModel, key: str) -> None:
        self._results[name] = (key, result)

    def put(self, record: Record) -> None:
        """Keep a result of another store."""
        self._results[record.name] = (record.key, record.text)

    def read(self, name: str, kind: type[Result]) -> Result:
        result = self._results[name][1]
        return kind.model_validate_json(result) if isinstance(result, str) else kind.model_validate(result)

    def folder(self, name: str, key: str, fill: Callable[[Path], object]) -> Path:
        path = Path(self._temporary.name) / name
        if self._folders.get(name) != key:
            remove(path)
            fill(path)
            self._folders[name] = key
        return path

    def write(self, name: str, content: str | bytes) -> None:
        pass

    def records(self, beginnings: Sequence[str]) -> list[Record]:
        return [
            Record(name, key, result if isinstance(result, str) else result.model_dump_json())
            for name, (key, result) in self._results.items()
            if name.startswith(tuple(beginnings))
        ]

    def drop(self, beginning: str) -> None:
        for name in [name for name in self._folders if name.startswith(beginning)]:
            remove(Path(self._temporary.name) / name)
            del self._folders[name]

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass
