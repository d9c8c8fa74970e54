"""A run's folder: results on disk, each valid for exactly what it was computed from.

A result is recomputed only when its key (a fingerprint of all that it depends on) has changed or its file was touched. Keys are written
after results, results in one step; whatever moment a run is killed at, the next one finds whole results or none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from laaciq.engine.files import sweep_partial, write_text
from laaciq.errors import OutputConflict
from laaciq.version import __version__

Result = TypeVar("Result", bound=BaseModel)
MARKER = "run.json"
CARD = "README.md"


def key_of(*parts: object) -> str:
    """Fingerprint of values that JSON can hold, and of this version of the software."""
    text = json.dumps([__version__, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class RunFolder:
    """Opens or makes a folder for results; refuses one that holds something else."""

    def __init__(self, path: Path, *, description: dict[str, object]) -> None:
        if path.exists() and not path.is_dir():
            raise OutputConflict(f"{path} is a file: give another --out")
        if path.is_dir() and any(path.iterdir()) and not (path / MARKER).exists():
            sweep_partial(path)
            if any(path.iterdir()):
                raise OutputConflict(f"{path} holds something else and was left as it is: give another --out")
        self.path = path
        write_text(path / MARKER, json.dumps({"laaciq": __version__, **description}, indent=1))
        for folder in (path, *(child for child in path.iterdir() if child.is_dir())):
            sweep_partial(folder)

    def valid(self, name: str, key: str) -> bool:
        """Is the result `name` (a file or a folder) there, untouched, and computed from `key`?"""
        path = self.path / name
        keyed = self._key_file(name)
        return path.exists() and keyed.exists() and keyed.read_text() == f"{key} {_content(path)}"

    def confirm(self, name: str, key: str) -> None:
        """Note that the result `name`, now on disk, was computed from `key`."""
        write_text(self._key_file(name), f"{key} {_content(self.path / name)}")

    def result(self, name: str, kind: type[Result], key: str, compute: Callable[[], Result]) -> Result:
        """The result of that name, read if still valid, else computed and written."""
        if self.valid(name, key):
            try:
                return self.read(name, kind)
            except ValidationError:
                pass  # of another version of the object: compute it again
        result = compute()
        self.keep(name, result, key)
        return result

    def keep(self, name: str, result: BaseModel, key: str) -> None:
        """Write a result that was computed from `key`."""
        write_text(self.path / name, result.model_dump_json(indent=1))
        self.confirm(name, key)

    def read(self, name: str, kind: type[Result]) -> Result:
        """A result that is there."""
        return kind.model_validate_json((self.path / name).read_text(encoding="utf-8"))

    def _key_file(self, name: str) -> Path:
        return self.path / "keys" / f"{name.replace('/', '.')}.key"


def _content(path: Path) -> str:
    """Of a file the digest; of a folder the names and sizes, since checkpoints are large. A model card may be added at any time."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    listing = sorted(
        (str(p.relative_to(path)), p.stat().st_size) for p in path.rglob("*") if p.is_file() and p.name != CARD
    )
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()
