"""Commands that meet a failing disk at each of their writes, and are run again when it works."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.forked import Ended, Trial, Undisturbed, remove_folder
from benchmarks.outcomes import Round
from benchmarks.system_calls import Hook, watch


def _fails(number: int) -> Hook:
    def fail(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


def _torn(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Only half of the bytes arrive."""
    handle, content = arguments
    call(handle, content[: len(content) // 2])
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _torn_and_killed(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    handle, content = arguments
    call(handle, content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


# What may happen to each call.
FAULTS: dict[str, dict[str, Hook]] = {
    "open": {"ENOSPC in creating a file": _fails(errno.ENOSPC), "EACCES in creating a file": _fails(errno.EACCES)},
    "write": {
        "ENOSPC in writing": _fails(errno.ENOSPC),
        "EIO in writing": _fails(errno.EIO),
        "a torn file, then EIO": _torn,
        "a torn file, then a kill": _torn_and_killed,
    },
    "fsync": {"EIO in fsync": _fails(errno.EIO)},
    "replace": {"EIO in moving": _fails(errno.EIO)},
    "rename": {"EIO in moving": _fails(errno.EIO)},
    "mkdir": {"EDQUOT in making a folder": _fails(errno.EDQUOT)},
    "unlink": {"EIO in removing": _fails(errno.EIO)},
    "rmdir": {"EIO in removing": _fails(errno.EIO)},
    "truncate": {"EIO in removing": _fails(errno.EIO)},
}
# Of the system itself, so that it reaches libraries that do not write through Python.
LIMITED = "EFBIG at a size, a torn file"


@dataclass(frozen=True)
class Fault:
    """One thing that happens to a command once."""

    kind: str
    place: int
    prepare: Callable[[], None]


def fault_rounds(folder: Path, numbers: Iterator[int], commands: tuple[str, ...]) -> Iterator[Round]:
    """One for each of these faults, counted over all commands. The folder of a round that failed stays."""
    wanted, counted = next(numbers), count()
    for command in commands:
        expected = Undisturbed(Trial(command, folder / "undisturbed" / command))
        for fault in _faults(expected):
            if next(counted) != wanted:
                continue
            wanted = next(numbers)
            trial = Trial(command, folder / "faults" / f"{command}-{fault.place}-{fault.kind.replace(' ', '-')}")
            remove_folder(trial.folder)
            made = Round(command)
            made.injected[fault.kind] += 1
            made.failure = _harm(trial, trial.run(prepare=fault.prepare)) or expected.difference(trial, trial.run())
            if made.failure is None:
                remove_folder(trial.folder)
            yield made


def count_faults(folder: Path, commands: tuple[str, ...]) -> int:
    undisturbed = (Undisturbed(Trial(command, folder / "undisturbed" / command)) for command in commands)
    return sum(1 for expected in undisturbed for _ in _faults(expected))


def _faults(expected: Undisturbed) -> Iterator[Fault]:
    for place, name in enumerate(expected.calls):
        for kind, hook in FAULTS[name].items():
            yield Fault(kind, place, partial(_inject, place, hook))
    for size in expected.sizes:
        yield Fault(LIMITED, size, partial(_limit, max(0, size - 1)))


def _inject(place: int, hook: Hook) -> None:
    places = count()

    def at_place(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return (hook if next(places) == place else _make)(name, call, arguments)

    watch(at_place)


def _make(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return call(*arguments)


def _limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _harm(trial: Trial, ended: Ended) -> str | None:
    """A command may also overcome a fault, such as one in removing what is of no use any more."""
    if ended.status not in (0, 2, -signal.SIGKILL):
        return f"status {ended.status}: {ended.last_line}"
    if ended.status == 2 and not ended.last_line.startswith("laaciq: "):
        return f"no sentence: {ended.last_line}"
    return f"{trial.torn[0]} is torn" if trial.torn else None
