"""Commands that are killed at random moments, and resumed by the same command until they finish."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.forked import Ended, Trial, Undisturbed, remove_folder
from benchmarks.outcomes import Round
from benchmarks.system_calls import watch

AT_A_CALL = "SIGKILL before a change of a file"
# By time, but the last: by the calls that change files, since that is where something could be lost. With their shares.
KINDS = {
    "SIGKILL": (signal.SIGKILL, 4),
    "SIGTERM": (signal.SIGTERM, 1),
    "SIGINT": (signal.SIGINT, 1),
    AT_A_CALL: (signal.SIGKILL, 2),
}
# After so many kills a command is left alone.
_MOST_PER_ROUND = 8


def kill_rounds(folder: Path, numbers: Iterator[int], commands: tuple[str, ...]) -> Iterator[Round]:
    """One for each number: each command in turn, from its beginning to its end. The folder of a round that failed stays."""
    expected = {command: Undisturbed(Trial(command, folder / "undisturbed" / command)) for command in commands}
    for number in numbers:
        command = commands[number % len(commands)]
        trial = Trial(command, folder / "kills" / f"{number}-{command}")
        remove_folder(trial.folder)
        made = _round(trial, expected[command], random.Random(number))
        if made.failure is None:
            remove_folder(trial.folder)
        yield made


def _round(trial: Trial, expected: Undisturbed, chance: random.Random) -> Round:
    made = Round(trial.command)
    while made.injected.total() < _MOST_PER_ROUND:
        (kind,) = chance.choices(list(KINDS), [share for _, share in KINDS.values()])
        number, _ = KINDS[kind]
        if kind == AT_A_CALL:
            ended = trial.run(prepare=_killing(chance.randrange(len(expected.calls))))
        else:
            ended = trial.run(stop=(chance.uniform(0, expected.ended.seconds), number))
        if ended.status == 0:  # before its time
            break
        made.injected[kind] += 1
        made.failure = _harm(trial, ended, number)
        if made.failure is not None:
            return made
    made.failure = expected.difference(trial, trial.run())
    return made


def _harm(trial: Trial, ended: Ended, number: int) -> str | None:
    # Before and after its work a command has no handlers.
    statuses = {-number} if number == signal.SIGKILL else {-number, 128 + number}
    if ended.status not in statuses:
        return f"status {ended.status} after signal {number}: {ended.last_line}"
    if ended.status > 0 and not ended.last_line.startswith("Interrupted."):
        return f"no sentence after signal {number}: {ended.last_line}"
    return f"{trial.torn[0]} is torn" if trial.torn else None


def _killing(place: int) -> Callable[[], None]:
    def prepare() -> None:
        places = count()

        def kill(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
            if next(places) == place:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments)

        watch(kill)

    return prepare
