"""Files that are whole or absent: written beside their place, then moved into it in one step. Nothing is replaced unless the user says so."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laaciq.errors import OutputConflict

_PARTIAL = ".partial-"
# Lists the files of a folder that `atomic_folder` wrote, one name per line: whatever else lies there is the user's.
FILE_LIST = ".laaciq-files"


def write_text(path: Path, text: str) -> None:
    """Replace `path` in one step; a reader sees the old text or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """As `write_text`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def require_free(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse an output folder that holds a finished result, unless `overwrite`; and always one that holds files of others.

    Call it before the work; `atomic_folder` replaces the folder after it.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OutputConflict(f"{folder} is a file: choose a folder")
    present = {path for path in folder.rglob("*") if not path.is_dir() and path.name != FILE_LIST}
    written = {
        path.parent / name for path in folder.rglob(FILE_LIST) for name in path.read_text(encoding="utf-8").splitlines()
    }
    if foreign := sorted(present - written):
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise OutputConflict(
            f"{folder} holds files that this command did not write ({foreign[0].relative_to(folder)}{more}): choose another folder"
        )
    if present and not overwrite:
        raise OutputConflict(
            f"{folder} holds a finished result: choose another folder, or replace the result with --overwrite"
        )


def require_free_file(file: Path, *, overwrite: bool = False) -> None:
    """Refuse an output file that exists, unless `overwrite`."""
    if file.is_dir():
        raise OutputConflict(f"{file} is a folder: choose a file")
    if file.exists() and not overwrite:
        raise OutputConflict(f"{file} exists: choose another file, or replace it with --overwrite")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which replaces `path` if the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=path.parent))
    try:
        yield partial
        names = [str(p.relative_to(partial)) for p in partial.rglob("*") if not p.is_dir() and p.name != FILE_LIST]
        write_text(partial / FILE_LIST, "\n".join(sorted(names)))
        partial.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_partial(folder: Path) -> None:
    """Remove what an interrupted command left half-written."""
    for path in folder.glob(f"{_PARTIAL}*"):
        remove(path)
