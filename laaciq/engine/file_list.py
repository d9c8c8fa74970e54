"""`.laaciq-files`: the list of what this software wrote to a folder. Whatever else lies there belongs to somebody else.

One name per line, relative to the folder and quoted as in a URL. A name that ends in a slash is a folder with a list of its own. A digest after
a name says that the file counts as ours only as long as nobody edits it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from laaciq.engine.files import write_bytes
from laaciq.engine.input_files import Refusal, file_inside, is_there, read_bytes
from laaciq.engine.lock import LOCK
from laaciq.errors import OutputConflict

FILE_LIST = ".laaciq-files"
# A file that is being written, and whatever else is not complete.
PARTIAL = ".laaciq-partial"
STAGING = ".laaciq-staging"

# Files of ours that are never listed.
_UNLISTED = frozenset({FILE_LIST, PARTIAL, LOCK})
_HIDDEN = ".laaciq-"
# A model card, which may be added to a checkpoint at any time.
CARD = "README.md"

_BROKEN = Refusal(OutputConflict, "choose another folder, or remove this one")

# Name → digest, or None.
Listed = dict[str, str | None]


def read_list(folder: Path) -> Listed:
    """Empty if there is no list. A last line that was cut short named a file that was not written yet."""
    path = folder / FILE_LIST
    if not is_there(path):
        return {}
    lines = read_bytes(path, _BROKEN, within=folder).decode("ascii", errors="replace").split("\n")[:-1]
    entries = [line.partition(" ") for line in lines]
    listed = {os.fsdecode(unquote_to_bytes(name)): digest or None for name, _, digest in entries}
    for name in listed:
        file_inside(folder, name, _BROKEN, named_in=path)
    return listed


def list_lines(listed: Mapping[str, str | None]) -> bytes:
    """What the list says of these names."""
    lines = (quote(os.fsencode(name)) + (f" {digest}" if digest else "") for name, digest in listed.items())
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def files_in(folder: Path) -> list[str]:
    """Names of all files, relative to the folder, except its list and what is not complete."""
    names = []
    for place, folders, files in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if name != STAGING]
        names += [_name(folder, Path(place, file)) for file in files]
    return sorted(name for name in names if name not in _UNLISTED)


def foreign_files(folder: Path) -> list[str]:
    """What lies in the folder and is not ours. Links never are; folders without files do not count."""
    known, foreign = read_list(folder), list[str]()
    for place, folders, files in os.walk(folder, onerror=_raise):
        for path in [Path(place, name) for name in folders]:
            name = _name(folder, path)
            if path.is_symlink():
                foreign.append(name)
            elif f"{name}/" in known:
                foreign += [f"{name}/{inner}" for inner in foreign_files(path)]
                folders.remove(path.name)
            elif name == STAGING and (folder / FILE_LIST).exists():  # which is made before it
                folders.remove(path.name)
        for path in [Path(place, name) for name in files]:
            name = _name(folder, path)
            if name not in _UNLISTED and not _is_ours(path, name, known):
                foreign.append(name)
    return sorted(foreign)


def _raise(error: OSError) -> None:
    """A folder that cannot be looked into may hold anything."""
    raise OutputConflict(f"{error.filename} cannot be read ({error.strerror}): choose another folder") from None


def add_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file into a finished folder. If that has a list, the file counts as ours as long as nobody edits it."""
    if (folder / FILE_LIST).exists():
        listed = read_list(folder) | {name: digest_of(content)}
        write_bytes(folder / FILE_LIST, list_lines(listed), partial=folder / PARTIAL)
    write_bytes(folder / name, content, partial=folder / PARTIAL)


def content_of(path: Path) -> str:
    """Of a file the digest; of a folder the names and sizes, since checkpoints are large. A card and our hidden files do not count."""
    if path.is_file():
        return digest_of(path.read_bytes())
    names = [name for name in files_in(path) if not Path(name).name.startswith(_HIDDEN) and Path(name).name != CARD]
    return digest_of(json.dumps([(name, (path / name).stat().st_size) for name in names]).encode())


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_ours(path: Path, name: str, listed: Listed) -> bool:
    if name not in listed or path.is_symlink() or not path.is_file():
        return False
    digest = listed[name]
    return digest is None or digest_of(path.read_bytes()) == digest


def _name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()
