"""The store on disk: the folder of one command, which `run.json` marks. The same command resumes there.

Results are written in one step, keys after results: whenever a run is killed, the next one reads whole results or none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from laaciq.engine.environment import versions
from laaciq.engine.escaping import shown_command
from laaciq.engine.file_list import content_of
from laaciq.engine.input_files import MOST_DATA_BYTES, Refusal, is_there, read_bytes, read_text, require_file
from laaciq.engine.json_input import parse_section, read_object, read_record
from laaciq.engine.output import OutputFolder
from laaciq.engine.recipe import RECIPE
from laaciq.engine.store import Record, Result, Store
from laaciq.errors import OutputConflict
from laaciq.version import __version__

MARKER = "run.json"
_KEYS = "keys"
# What run.json says beside the description of the command.
UNREADABLE = Refusal(OutputConflict, "the run's folder is damaged; choose another folder, or remove this one")
_STATE = ("laaciq", "computed_with", "finished", "replacing")


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
        self._output = OutputFolder(path, command=_command(self._description))
        try:
            self._open(overwrite)
        except BaseException:
            self.close()
            raise

    def _open(self, overwrite: bool) -> None:
        self._resumed = bool(self._output.listed)
        marker = (read_marker(self.path) or {}) if MARKER in self._output.listed else {}
        if self._resumed and MARKER not in self._output.listed:
            raise OutputConflict(f"{self.path} holds the result of another command: choose another folder")
        earlier = {name: value for name, value in marker.items() if name not in _STATE}
        other = bool(marker) and earlier != self._description
        if other and not overwrite:
            state = "finished" if marker.get("finished") else "unfinished"
            raise OutputConflict(
                f"{self.path} holds the {state} {_command(earlier)}, and this is {_command(self._description)}: "
                f"choose another folder, or replace what is there with --overwrite"
            )
        self._replacing = other or bool(marker.get("replacing"))
        self._finished = not other and bool(marker.get("finished"))
        if not self._finished:
            self._mark(finished=False)

    def valid(self, name: str, key: str) -> bool:
        """`name` is a file or a folder."""
        path, keyed = self.path / name, self.path / _key_file(name)
        valid = path.exists() and is_there(keyed)
        if valid and not path.is_dir():
            require_file(path, UNREADABLE, within=self.path, most=MOST_DATA_BYTES)
        valid = valid and read_bytes(keyed, UNREADABLE, within=self.path) == f"{key} {content_of(path)}".encode()
        if valid:
            self._used.add(name)
        return valid

    def keep(self, name: str, result: BaseModel, key: str) -> None:
        self._write(name, result.model_dump_json(indent=1).encode(), key)

    def folder(self, name: str, key: str, fill: Callable[[Path], object]) -> Path:
        if not self.valid(name, key):
            self._change()
            with self._output.replacing(name) as folder:
                fill(folder)
            self._confirm(name, key)
        return self.path / name

    def read(self, name: str, kind: type[Result]) -> Result:
        return read_record(self.path / name, kind, UNREADABLE, within=self.path)

    def write(self, name: str, content: str | bytes) -> None:
        encoded = content.encode() if isinstance(content, str) else content
        key = hashlib.sha256(encoded).hexdigest()
        if not self.valid(name, key):
            self._write(name, encoded, key)

    def records(self, beginnings: Sequence[str]) -> list[Record]:
        records = []
        for name in sorted(self._output.listed):
            path, keyed = self.path / name, self.path / _key_file(name)
            if name.startswith(tuple(beginnings)) and path.is_file() and is_there(keyed):
                key, _, content = read_text(keyed, UNREADABLE, within=self.path).partition(" ")
                if content == content_of(path):
                    text = read_text(path, UNREADABLE, within=self.path, most=MOST_DATA_BYTES)
                    records.append(Record(name, key, text))
        return records

    def drop(self, beginning: str) -> None:
        folders = [name for name in self._output.listed if name.startswith(beginning) and name.endswith("/")]
        names = {name.removesuffix("/") for name in folders}
        # Keys first: a folder without its key counts for nothing.
        self._output.remove(map(_key_file, names))
        self._output.remove(folders)
        self._used -= names

    def finish(self) -> None:
        """Note that the command reached its end, and remove the results of a command that it replaced."""
        if self._replacing:
            kept = {MARKER, *self._used, *(f"{name}/" for name in self._used), *map(_key_file, self._used)}
            self._output.remove(self._output.listed - kept)
            self._replacing = False
        self._mark(finished=True)

    def close(self) -> None:
        """A new folder in which no result was kept goes: a command that is refused leaves nothing."""
        try:
            if not self._resumed and self._used <= {RECIPE}:
                self._output.remove(self._output.listed)
        finally:
            self._output.close()

    def _write(self, name: str, content: bytes, key: str) -> None:
        """Keys are written after results: without its key a result counts for nothing."""
        self._change()
        self._output.claim(name, _key_file(name))
        self._output.write(name, content)
        self._confirm(name, key)

    def _confirm(self, name: str, key: str) -> None:
        self._output.write(_key_file(name), f"{key} {content_of(self.path / name)}".encode())
        self._used.add(name)

    def _change(self) -> None:
        """A finished run is unfinished from its first change on, and not from a repeat that computes nothing."""
        if self._finished:
            self._mark(finished=False)

    def _mark(self, *, finished: bool) -> None:
        state = {"finished": finished, **({"replacing": True} if self._replacing else {})}
        marker = {"laaciq": __version__, **self._description, "computed_with": self._computed_with, **state}
        self._output.write(MARKER, json.dumps(marker, indent=1).encode())
        self._finished = finished


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


def _key_file(name: str) -> str:
    return f"{_KEYS}/{quote(name, safe='')}.key"


def _command(description: Mapping[str, object]) -> str:
    """In words: the command line, and whatever else decides the results."""
    others = {name: value for name, value in description.items() if name != "command"}
    parts = [f"'{shown_command(str(description['command']))}'"] if "command" in description else []
    return " with ".join([*parts, *([json.dumps(others)] if others or not parts else [])])
