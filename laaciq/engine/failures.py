"""What the machine lacks, in a sentence: room on the disk, permission to write, memory."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Container
from pathlib import Path

from laaciq.errors import LaaciqError, TooLittleMemory, WriteFailed

_PERMISSION = "choose a folder that you may write to, or change its permissions"
_DISK = "check the disk"
# Errors of the operating system that are no fault of the software, and what to do about them.
_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the limit on the size of files ('ulimit -f')",
    errno.EMFILE: "raise the limit on open files ('ulimit -n')",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: "choose a folder that can be written to",
    errno.EIO: _DISK,
    errno.ESTALE: _DISK,
    errno.ETIMEDOUT: _DISK,
}
_AGAIN = "then run the same command again"
# Errors that only writing meets.
ONLY_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
# How libraries in Rust, safetensors and tokenizers, word an error of the operating system.
_NUMBERED = re.compile(r"\(os error (\d+)\)")
# How libraries word that they got no memory.
_NO_MEMORY = re.compile(
    r"not enough memory|can't allocate memory|cannot allocate memory|out of memory|bad_alloc|ALLOC_FAILED",
    re.IGNORECASE,
)


def write_failed(error: Exception, path: Path, numbers: Container[int] | None = None) -> WriteFailed | None:
    """For an error of the operating system, or one of these `numbers`, while `path` was written; None for other errors."""
    number = _system_error(error)
    if number is None or (numbers is not None and number not in numbers):
        return None
    return WriteFailed(f"{path} cannot be written ({os.strerror(number)}): {_ADVICE.get(number, _DISK)}, {_AGAIN}")


def explained(error: Exception) -> LaaciqError | None:
    """For an error that reached the top: what the machine lacked; None if it may be a fault of the software."""
    number = _system_error(error)
    lacked_memory = isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))
    if isinstance(error, MemoryError) or number == errno.ENOMEM or lacked_memory:
        kind = "GPU memory" if re.search("CUDA|CUBLAS", str(error)) else "memory"
        return TooLittleMemory(
            f"there was too little {kind}: close other programs, take a smaller model or a machine with more {kind}, {_AGAIN}"
        )
    if number not in _ADVICE:
        return None
    named = getattr(error, "filename", None)
    place = "" if named is None else f" ({named})"
    return WriteFailed(f"{os.strerror(number)}{place}: {_ADVICE[number]}, {_AGAIN}")


def _system_error(error: Exception) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    match = _NUMBERED.search(str(error))
    return None if match is None else int(match[1])
