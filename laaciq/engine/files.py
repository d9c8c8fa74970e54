"""Files that are whole or not there: written beside their place, then moved into it in one step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from laaciq.errors import OutputConflict

_PARTIAL = ".partial-"


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


def require_free(folder: Path, ours: Callable[[Path], bool]) -> None:
    """Refuse a place that holds anything but what `ours` knows as an earlier result, which may be replaced."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not ours(folder))):
        raise OutputConflict(f"{folder} holds something else and was left as it is: give another --out")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=path.parent))
    try:
        yield partial
        partial.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def sweep_partial(folder: Path) -> None:
    """Remove what an earlier run that was killed left half-written."""
    for path in folder.glob(f"{_PARTIAL}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
