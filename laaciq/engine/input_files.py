"""Reading files that this program did not just write: all of them are opened here, and their contents are checked before use.

A file must be a regular file of bounded size. A file of a folder must be within that folder, after resolving all symbolic links, or in the
blobs of the same repository in the Hugging Face cache. JSON is parsed by `laaciq.engine.json_input`, YAML by `laaciq.engine.yaml_input`.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from laaciq.errors import LaaciqError

# Settings that people or programs write: a tokenizer of 262,144 tokens takes 33 MB.
MOST_SETTINGS_BYTES = 2**28
# Texts, and results with arrays in them: a profile of a model with 70 billion weights takes 900 MB.
MOST_DATA_BYTES = 2**32

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


@dataclass(frozen=True)
class Refusal:
    """How files of one kind are refused: the class of the error, and what the user can do."""

    error: type[LaaciqError]
    remedy: str

    def of(self, path: Path | str, problem: str) -> LaaciqError:
        """The error for one file. `problem` follows its name in the sentence."""
        return self.error(f"{path} {problem}: {self.remedy}")


def is_there(path: Path) -> bool:
    """True if anything exists at `path`, even a broken link. False for an impossible name."""
    try:
        return os.path.lexists(path)
    except ValueError:  # a NUL in the name
        return False


def is_folder(path: Path) -> bool:
    """True if `path` is a folder."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """True if `path` is a regular file."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def require_file(path: Path, refusal: Refusal, *, within: Path | None = None, most: int | None = None) -> Path:
    """`path`, if it is a regular file of at most `most` bytes; it is not opened. `within` is the folder that it belongs to: links must not
    lead out of it. Without `within` the user named the file, and may have named a link.
    """
    try:
        status = path.stat()
        if within is not None and not _lies_within(path, within):
            raise refusal.of(path, "is a link that leads out of its folder; replace it with a copy of the file")
    except (OSError, ValueError, RuntimeError) as error:
        raise refusal.of(path, _problem(error, path)) from None
    if not stat.S_ISREG(status.st_mode):
        raise refusal.of(path, f"is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something')}, not a file")
    if most is not None and status.st_size > most:
        raise refusal.of(path, f"has {status.st_size:,} bytes, more than the limit of {most:,}")
    return path


def file_inside(folder: Path, name: object, refusal: Refusal, *, named_in: Path) -> Path:
    """The path of a file that another file names: relative, and within the folder. It need not exist."""
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise refusal.of(named_in, f"names {name!r} as a file")
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise refusal.of(named_in, f"names the file {name!r}, which is not in its folder")
    return folder / path


def read_bytes(path: Path, refusal: Refusal, *, within: Path | None = None, most: int = MOST_SETTINGS_BYTES) -> bytes:
    require_file(path, refusal, within=within, most=most)
    try:
        return path.read_bytes()
    except OSError as error:
        raise refusal.of(path, _problem(error, path)) from None


def read_text(path: Path, refusal: Refusal, *, within: Path | None = None, most: int = MOST_SETTINGS_BYTES) -> str:
    """The text of a UTF-8 file, without a byte order mark, lines ending in \\n."""
    content = read_bytes(path, refusal, within=within, most=most)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refusal.of(path, f"is not UTF-8 (byte {error.start})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_text(value: str) -> bool:
    """True if the text can be written as UTF-8. Half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _lies_within(path: Path, folder: Path) -> bool:
    target, root = path.resolve(strict=True), folder.resolve(strict=True)
    return target.is_relative_to(root) or any(target.is_relative_to(blobs) for blobs in _blobs(root))


def _blobs(root: Path) -> list[Path]:
    """Where the Hugging Face cache keeps the files of models--ORG--NAME/snapshots/REVISION, which has links to them."""
    return [above.parent / "blobs" for above in root.parents if above.name == "snapshots"]


def _problem(error: Exception, path: Path) -> str:
    if isinstance(error, RuntimeError) or (isinstance(error, OSError) and error.errno == errno.ELOOP):
        return "is a symbolic link that leads back to itself"
    if isinstance(error, FileNotFoundError):
        return "is a symbolic link to nothing" if path.is_symlink() else "is missing"
    if isinstance(error, PermissionError):
        return "cannot be read by this user"
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or error})"
    return "is not a possible file name"
