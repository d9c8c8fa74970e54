"""System calls by which Python code changes files, watched within one process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

CALLS = ("open", "write", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "truncate")
_WRITES = os.O_WRONLY | os.O_RDWR

# Makes a call, or does something else: from its name, the function and its arguments.
Hook = Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]


def watch(hook: Hook) -> None:
    """From now on `hook` makes all these calls of this process. Files that are opened to be read are left alone."""
    for name in CALLS:
        setattr(os, name, _watched(name, getattr(os, name), hook))


def _watched(name: str, call: Callable[..., Any], hook: Hook) -> Callable[..., Any]:
    def watched(*arguments: Any, **options: Any) -> Any:
        if name == "open" and not (len(arguments) > 1 and arguments[1] & _WRITES):
            return call(*arguments, **options)
        return hook(name, lambda *given: call(*given, **options), arguments)

    return watched
