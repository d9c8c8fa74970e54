"""Stores of results, each valid for exactly what it was computed from: a run's folder on disk, or memory.

A result is computed again only if its key (a fingerprint of everything that it depends on) has changed or its file was edited. Results are
written in one step, keys after results: whenever a run is killed, the next one reads whole results or none.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, ValidationError

from laaciq.engine.environment import versions
from laaciq.engine.escaping import shown_command
from laaciq.engine.files import remove, remove_partial, write_text
from laaciq.engine.input_files import Refusal, is_there, read_bytes, require_file
from laaciq.engine.json_input import parse_section, read_object, read_record
from laaciq.errors import LaaciqError, OutputConflict
from laaciq.version import __version__

Result = TypeVar("Result", bound=BaseModel)
MARKER = "run.json"
CARD = "README.md"
_KEYS = "keys"
# What run.json says beside the description of the command.
UNREADABLE = Refusal(OutputConflict, "the run's folder is damaged; choose another folder, or remove this one")
_STATE = ("laaciq", "computed_with", "finished", "replacing")


def key_of(*parts: object) -> str:
    """Fingerprint of values that JSON can hold, and of the versions of all that computes."""
    return portable_key_of(versions(), *parts)


def portable_key_of(*parts: object) -> str:
    """As `key_of`, with no version but this software's: for results that name the other versions that made them."""
    text = json.dumps([__version__, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


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
    def write(self, name: str, text: str) -> None:
        """Write a text for people beside the results, such as a report. Without a folder it is dropped."""

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

    def write(self, name: str, text: str) -> None:
        self._store.write(f"{self._prefix}/{name}", text)

    def finish(self) -> None:
        """The whole store is finished by whoever opened it."""


class MemoryStore(Store):
    """Keeps results for as long as it lives; folders are temporary."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[str, BaseModel]] = {}
        self._folders: dict[str, str] = {}

    @cached_property
    def _temporary(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="laaciq-")

    def valid(self, name: str, key: str) -> bool:
        return name in self._results and self._results[name][0] == key

    def keep(self, name: str, result: BaseModel, key: str) -> None:
        self._results[name] = (key, result)

    def read(self, name: str, kind: type[Result]) -> Result:
        return kind.model_validate(self._results[name][1])

    def folder(self, name: str, key: str, fill: Callable[[Path], object]) -> Path:
        path = Path(self._temporary.name) / name
        if self._folders.get(name) != key:
            fill(path)
            self._folders[name] = key
        return path

    def write(self, name: str, text: str) -> None:
        pass

    def finish(self) -> None:
        pass


class RunFolder(Store):
    """Results in a folder, which run.json marks as one command's.

    The same command resumes or repeats: `description` decides which is the same. Another command is refused, unless `overwrite`: then it
    uses the results that are still valid for it, and removes the others when it finishes. A folder that is no run's is always refused.
    run.json names what results were `computed_with`, which their keys hold: versions, the device, the type of numbers.
    """

    def __init__(
        self,
        path: Path,
        *,
        description: Mapping[str, object],
        overwrite: bool = False,
        computed_with: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self._computed_with = dict(computed_with or versions())
        self._description = json.loads(json.dumps(dict(description), default=str))
        self._used: set[str] = set()
        marker = _require_run(path)
        earlier = {name: value for name, value in marker.items() if name not in _STATE}
        other = bool(marker) and earlier != self._description
        if other and not overwrite:
            state = "finished" if marker.get("finished") else "unfinished"
            raise OutputConflict(
                f"{path} holds the {state} {_command(earlier)}, and this is {_command(self._description)}: "
                f"choose another folder, or replace what is there with --overwrite"
            )
        self._replacing = other or bool(marker.get("replacing"))
        self._finished = not other and bool(marker.get("finished"))
        if not self._finished:
            self._mark(finished=False)
        for folder in (path, *(child for child in path.iterdir() if child.is_dir())):
            remove_partial(folder)

    def valid(self, name: str, key: str) -> bool:
        """`name` is a file or a folder."""
        path = self.path / name
        keyed = self._key_file(name)
        valid = path.exists() and is_there(keyed)
        if valid and not path.is_dir():
            require_file(path, UNREADABLE, within=self.path)
        valid = valid and read_bytes(keyed, UNREADABLE, within=self.path) == f"{key} {_content(path)}".encode()
        if valid:
            self._used.add(name)
        return valid

    def keep(self, name: str, result: BaseModel, key: str) -> None:
        self._change()
        write_text(self.path / name, result.model_dump_json(indent=1))
        self.confirm(name, key)

    def folder(self, name: str, key: str, fill: Callable[[Path], object]) -> Path:
        if not self.valid(name, key):
            self._change()
            fill(self.path / name)
            self.confirm(name, key)
        return self.path / name

    def confirm(self, name: str, key: str) -> None:
        """Note that the file or folder `name`, which the caller wrote, was computed from `key`."""
        self._change()
        write_text(self._key_file(name), f"{key} {_content(self.path / name)}")
        self._used.add(name)

    def read(self, name: str, kind: type[Result]) -> Result:
        return read_record(self.path / name, kind, UNREADABLE, within=self.path)

    def write(self, name: str, text: str) -> None:
        if self.valid(name, key_of(text)):
            return
        self._change()
        write_text(self.path / name, text)
        self.confirm(name, key_of(text))

    def finish(self) -> None:
        """Note that the command reached its end, and remove the results of a command that it replaced."""
        if self._replacing:
            for keyed in sorted((self.path / _KEYS).glob("*.key")):
                name = unquote(keyed.stem)
                if name not in self._used:
                    if (self.path / name).resolve().is_relative_to(self.path.resolve()):
                        remove(self.path / name)
                    keyed.unlink()
            self._replacing = False
        self._mark(finished=True)

    def _change(self) -> None:
        """A finished run is unfinished from its first change on, and not from a repeat that computes nothing."""
        if self._finished:
            self._mark(finished=False)

    def _mark(self, *, finished: bool) -> None:
        state = {"finished": finished, **({"replacing": True} if self._replacing else {})}
        marker = {"laaciq": __version__, **self._description, "computed_with": self._computed_with, **state}
        write_text(self.path / MARKER, json.dumps(marker, indent=1))
        self._finished = finished

    def _key_file(self, name: str) -> Path:
        return self.path / _KEYS / f"{quote(name, safe='')}.key"


class _Marker(BaseModel):
    """What run.json always says; the rest describes the command."""

    model_config = ConfigDict(extra="allow")

    laaciq: str
    finished: bool
    replacing: bool = False
    command: str = ""


def read_marker(folder: Path) -> dict[str, Any] | None:
    """What run.json of a run's folder says: `laaciq` (the version), `finished`, and the description with its `command`; None if there is no
    run.json."""
    path = folder / MARKER
    if not is_there(path):
        return None
    marker = read_object(path, UNREADABLE, within=folder)
    parse_section(marker, _Marker, str(path), UNREADABLE)
    return marker


def _require_run(path: Path) -> dict[str, Any]:
    """The marker of a run's folder; empty if the folder is new or empty."""
    if path.exists() and not path.is_dir():
        raise OutputConflict(f"{path} is a file: choose a folder")
    if not path.exists():
        return {}
    if (marker := read_marker(path)) is not None:
        return marker
    remove_partial(path)
    if any(path.iterdir()):
        raise OutputConflict(f"{path} holds files that are no run's and was left as it is: choose another folder")
    return {}


def _command(description: Mapping[str, object]) -> str:
    """In words: the command line, and whatever else decides the results."""
    others = {name: value for name, value in description.items() if name != "command"}
    parts = [f"'{shown_command(str(description['command']))}'"] if "command" in description else []
    return " with ".join([*parts, *([json.dumps(others)] if others or not parts else [])])


def _content(path: Path) -> str:
    """Of a file the digest; of a folder the names and sizes, since checkpoints are large. A model card may be added at any time."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    listing = sorted(
        (str(p.relative_to(path)), p.stat().st_size) for p in path.rglob("*") if p.is_file() and p.name != CARD
    )
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()
