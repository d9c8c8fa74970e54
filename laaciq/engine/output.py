"""Folders that commands write to. They hold nothing of others, one process at a time writes to them, and their files are whole or absent."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Self

from laaciq.engine.failures import ONLY_WRITING
from laaciq.engine.file_list import FILE_LIST, PARTIAL, STAGING, files_in, foreign_files, list_lines, read_list
from laaciq.engine.files import make_folder, remove, sync_folder, write_bytes, write_through, writing
from laaciq.engine.lock import FolderLock
from laaciq.errors import OutputConflict

# Folders within `STAGING`. A whole output is filled as `new`, complete as `ready`, and moved into its place from `moving`.
_NEW, _READY, _MOVING, _OLD, _FILE, _PARTS = "new", "ready", "moving", "old", "file", "parts"


class OutputFolder:
    """A folder that this process writes to until `close`. A folder that holds files of others is refused, and so is one that another process
    writes to. What a killed process left half-written is removed; what it had completed is moved into its place.

    Names are relative to the folder. Each is put on the list before its file is written: a kill leaves no file that looks like somebody else's.
    """

    def __init__(self, path: Path, *, command: str) -> None:
        _require_folder(path)
        self.path = path
        self._staging = path / STAGING
        self._made = _missing_folders(path)
        self._lock: FolderLock | None = None
        self._listed: dict[str, str | None] = {}
        try:
            if not (path / FILE_LIST).exists():
                _require_own(path)
            with writing(path):
                make_folder(path)
                self._lock = FolderLock(path, command)
                self._recover()
        except BaseException:
            self.close()
            raise

    @property
    def listed(self) -> frozenset[str]:
        return frozenset(self._listed)

    @property
    def parts(self) -> Path:
        """For results on the way to a whole output: they stay until that is complete."""
        return self._staging / _PARTS

    # Single files and folders

    def claim(self, *names: str) -> None:
        """List the names as ours. One that somebody else's file has is refused."""
        claimed = dict.fromkeys(name for name in names if name not in self._listed)
        for name in claimed:
            if os.path.lexists(self.path / name):
                raise OutputConflict(_foreign_sentence(self.path, [name.rstrip("/")]))
        if claimed:
            with writing(self.path):
                self._append(list_lines(claimed))
            self._listed |= claimed

    def write(self, name: str, content: bytes) -> None:
        """Replace a file in one step."""
        self.claim(name)
        self._make_staging()
        write_bytes(self.path / name, content, partial=self._staging / _FILE)

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """An empty folder to fill, which takes the place of the folder `name` if the block ends without an error."""
        self.claim(f"{name}/")
        with self._filled() as new:
            yield new
            with writing(self.path):
                write_bytes(new / FILE_LIST, list_lines(dict.fromkeys(files_in(new))))
                sync_folder(new)
                place = self.path / name
                self._set_aside(place)
                make_folder(place.parent)
                os.rename(new, place)
                remove(self._staging / _OLD)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files and folders that are listed, and take them off the list."""
        gone = set(names) & self._listed.keys()
        if not gone:
            return
        with writing(self.path):
            for name in sorted(gone):
                if name.endswith("/"):
                    self._set_aside(self.path / name)
                    remove(self._staging / _OLD)
                else:
                    remove(self.path / name)
                self._remove_empty(PurePosixPath(name).parents)
            self._rewrite({name: digest for name, digest in self._listed.items() if name not in gone})

    # The folder as a whole

    @contextmanager
    def replacing_all(self) -> Iterator[Path]:
        """An empty folder to fill, whose files take the place of all that is listed if the block ends without an error.

        The folder itself stays, since it may be a mounted disk or a link.
        """
        with self._filled() as new:
            yield new
            with writing(self.path):
                names = dict.fromkeys(files_in(new))
                _require_own(self.path)
                self._rewrite(self._listed | names)
                write_bytes(new / FILE_LIST, list_lines(names))
                sync_folder(new)
                os.rename(new, self._staging / _READY)
                self._install()
                self.remove_parts()

    def remove_parts(self) -> None:
        remove(self.parts)

    def close(self) -> None:
        """Let others write. Parts of a whole output stay for the next time; a folder in which nothing was written goes."""
        if self._lock is not None:
            self._remove_state()
            self._lock.release()
            self._lock = None
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _filled(self) -> Iterator[Path]:
        new = self._staging / _NEW
        self._make_staging()
        with writing(self.path):
            remove(new)
            new.mkdir()
        try:
            # Within, other things may be read too.
            with writing(self.path, ONLY_WRITING):
                yield new
        except BaseException:
            with suppress(OSError):
                remove(new)
            raise

    def _recover(self) -> None:
        self._listed = read_list(self.path)
        _require_own(self.path)
        if (self._staging / _READY).exists() or (self._staging / _MOVING).exists():
            self._install()
        # Names whose files were not written any more are free again. The last line may have been cut short.
        self._rewrite({name: digest for name, digest in self._listed.items() if (self.path / name).exists()})
        self._remove_partial()

    def _remove_partial(self) -> None:
        for name in (_NEW, _OLD, _FILE):
            remove(self._staging / name)

    def _remove_state(self) -> None:
        with suppress(OSError):
            self._remove_partial()
            with suppress(OSError):
                self._staging.rmdir()
            if not self._listed and not self._staging.exists():
                (self.path / FILE_LIST).unlink(missing_ok=True)

    def _install(self) -> None:
        """Never is there a mixture of the old and the new: all that was there goes before anything comes. Killed at any moment, it goes on
        from there the next time."""
        ready, moving = self._staging / _READY, self._staging / _MOVING
        if ready.exists():
            for name in self._listed:
                remove(self.path / name)
                self._remove_empty(PurePosixPath(name).parents)
            os.rename(ready, moving)
        names = files_in(moving)
        for name in names:
            make_folder((self.path / name).parent)
            os.replace(moving / name, self.path / name)
        if (moving / FILE_LIST).exists():
            os.replace(moving / FILE_LIST, self.path / FILE_LIST)
        self._listed = read_list(self.path)
        remove(moving)

    def _set_aside(self, place: Path) -> None:
        """Move a folder of ours to where it can be removed: a kill on the way leaves no half of it."""
        old = self._staging / _OLD
        remove(old)
        if not place.exists():
            return
        if foreign := foreign_files(place):
            raise OutputConflict(_foreign_sentence(place, foreign))
        self._make_staging()
        os.rename(place, old)

    def _append(self, lines: bytes) -> None:
        path = self.path / FILE_LIST
        length = path.stat().st_size
        try:
            write_through(path, lines, os.O_APPEND)
        except BaseException:
            with suppress(OSError):
                os.truncate(path, length)
            raise

    def _rewrite(self, listed: dict[str, str | None]) -> None:
        write_bytes(self.path / FILE_LIST, list_lines(listed), partial=self.path / PARTIAL)
        self._listed = listed

    def _make_staging(self) -> None:
        with writing(self.path):
            make_folder(self._staging)

    def _remove_empty(self, folders: Iterable[PurePosixPath]) -> None:
        """The folders of a file that was removed, from the innermost on, as far as they are empty now."""
        for folder in folders:
            if folder.parts:
                with suppress(OSError):
                    (self.path / folder).rmdir()


def _require_folder(path: Path) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise OutputConflict(
                f"{path} is a symbolic link to {os.readlink(path)}, which does not exist: make that folder, or choose another"
            ) from None
        return
    except OSError as error:
        raise OutputConflict(f"{path} cannot be used ({error.strerror}): choose another folder") from None
    if not stat.S_ISDIR(mode):
        raise OutputConflict(f"{path} is a file: choose a folder")


def _missing_folders(path: Path) -> list[Path]:
    """The folders that must be made, innermost first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def _require_own(folder: Path) -> None:
    if folder.exists() and (foreign := foreign_files(folder)):
        raise OutputConflict(_foreign_sentence(folder, foreign))


def _foreign_sentence(folder: Path, foreign: list[str]) -> str:
    more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
    return f"{folder} holds files that this command did not write ({foreign[0]}{more}): choose another folder, or move them away"
