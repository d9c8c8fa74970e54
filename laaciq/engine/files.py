"""Files that are whole or absent: written beside their place, then moved into it in one step. Nothing is replaced unless the user says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from laaciq.engine.failures import write_failed
from laaciq.errors import OutputConflict

# Nothing is read or written through a link that somebody put in the place of a file.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def write_text(path: Path, text: str) -> None:
    """Replace `path` in one step; a reader sees the old text or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes, *, partial: Path | None = None) -> None:
    """As `write_text`. It is written to `partial` first: by default beside its place, under a name that the next writing takes again."""
    partial = partial or path.with_name(f".{path.name}.laaciq-partial")
    with writing(path):
        make_folder(path.parent)
        try:
            write_through(partial, content, os.O_TRUNC)
            os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


def make_folder(path: Path) -> None:
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)


def write_through(path: Path, content: bytes, mode: int) -> None:
    """Write to the disk itself; `mode` is `os.O_TRUNC` or `os.O_APPEND`."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | mode | _NO_LINK, 0o666)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has every file in the folder, whoever wrote it, and the names of all."""
    for place, _, names in os.walk(folder):
        for path in (*(Path(place, name) for name in names), Path(place)):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


@contextmanager
def writing(path: Path, numbers: Container[int] | None = None) -> Iterator[None]:
    """An error of the operating system within, or one of these `numbers`, is a failure to write `path`, in a sentence."""
    try:
        yield
    except Exception as error:
        failed = write_failed(error, path, numbers)
        if failed is None:
            raise
        raise failed from error


def free_file(path: Path, *, overwrite: bool = False, replaceable: Callable[[str], bool]) -> Path:
    """Where to write an output file: `path`, or where that link leads. A file that exists is replaced only with `overwrite`, and only if
    `replaceable` holds of its text."""
    if path.is_symlink() and not path.exists():
        raise OutputConflict(f"{path} is a symbolic link that leads nowhere: choose another file, or remove the link")
    if path.is_dir():
        raise OutputConflict(f"{path} is a folder: choose a file")
    if path.exists():
        if not overwrite:
            raise OutputConflict(f"{path} exists: choose another file, or replace it with --overwrite")
        if not path.is_file() or not replaceable(path.read_text(encoding="utf-8", errors="replace")):
            raise OutputConflict(f"{path} was not written by this command: choose another file")
    return Path(os.path.realpath(path))


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
