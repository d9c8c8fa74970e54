"""One process at a time writes to a folder. Another one is refused, with the owner's name; readers need no lock.

The system releases the lock of a process that ends, however it ends. Where the file system has no locks, filelock tells by process number,
start time and boot whether the owner still lives.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from laaciq.errors import OutputConflict

LOCK = ".laaciq-lock"
# An owner that is about to end, or has just ended, is waited for.
_PATIENCE = 1.0


class FolderLock:
    """Held until `release`, or until the process ends."""

    def __init__(self, folder: Path, command: str) -> None:
        # Commands that only read start faster without it.
        from filelock import FileLock, SoftFileLock, Timeout

        self._path = folder / LOCK
        self._lock = FileLock(self._path, timeout=_PATIENCE)
        try:
            self._lock.acquire()
        except Timeout:
            raise OutputConflict(
                f"{folder} is in use by {_owner(self._path)}: wait until that ends, or choose another folder"
            ) from None
        # Without locks of the file system, the file is filelock's own record of the owner.
        self._ours = not isinstance(self._lock, SoftFileLock)
        if self._ours:
            self._path.write_text(json.dumps(_this_process(command)), encoding="utf-8")

    def release(self) -> None:
        # While it is held: a process that waits for this file notices that it is gone, and makes a new one.
        if self._ours:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._lock.release()


def _this_process(command: str) -> dict[str, Any]:
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": since, "command": command}


def _owner(path: Path) -> str:
    """In words."""
    try:
        text = path.read_text(encoding="utf-8")
        owner = json.loads(text) if text.startswith("{") else dict(zip(("pid", "host"), text.split(), strict=False))
        since = f", since {owner['since']}" if "since" in owner else ""
        command = f"'{owner['command']}', " if "command" in owner else ""
        return f"{command}process {owner['pid']} on {owner['host']}{since}"
    except (OSError, ValueError, KeyError):
        return "another process"
