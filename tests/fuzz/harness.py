"""Fuzzing: damaged inputs, one after the other, each with a result or one of our errors within a time limit, and nothing else.

`fuzz(300, 0)` runs three hundred. The same number and seed make the same cases.
"""

from __future__ import annotations

import signal
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from random import Random
from typing import Literal

from laaciq.engine.progress import Progress
from laaciq.errors import LaaciqError
from tests.fuzz.inputs import Inputs, make_inputs
from tests.fuzz.mutations import Mutation, no_file
from tests.fuzz.targets import Target, target_of

SECONDS = 30
Outcome = Literal["accepted", "refused", "traceback", "hang", "wrong, accepted"]
GOOD: tuple[Outcome, ...] = ("accepted", "refused")


@dataclass
class Counts:
    """Outcomes by name of the target; `failures` tells of each bad one what was done and how to see it again."""

    outcomes: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def of(self, outcome: Outcome) -> int:
        return sum(count for (_, seen), count in self.outcomes.items() if seen == outcome)


class _Hang(BaseException):
    """The time limit passed."""


def fuzz(
    count: int, seed: int = 0, progress: Progress = Progress(), *, first: int = 0, inputs: Inputs | None = None
) -> Counts:
    """`count` cases from number `first` on, in turn over all targets. Inputs are made anew where none are given."""
    counts = Counts()
    with tempfile.TemporaryDirectory(prefix="laaciq-fuzz-") as folder, progress.stage("fuzzing", count) as advance:
        inputs = inputs or make_inputs(Path(folder))
        for number in range(first, first + count):
            target = target_of(number)
            mutation, outcome, detail = run_case(target, inputs, Random(f"{seed}:{number}"))
            counts.outcomes[target.name, outcome] += 1
            if outcome not in GOOD:
                counts.failures.append(
                    f"seed {seed}, case {number}, {target.name}, {mutation.name}: {outcome} {detail}"
                )
            advance(1)
    return counts


def run_case(target: Target, inputs: Inputs, random: Random) -> tuple[Mutation, Outcome, str]:
    """Damage a copy of the input, use it, and say how that ended."""
    with tempfile.TemporaryDirectory(dir=inputs.folder) as place:
        copied = inputs.copy(target.source, Path(place))
        mutator = random.choice(target.mutators)
        file = copied / target.file if target.file else copied
        mutation = mutator(file, random)
        absent_by_right = target.optional and mutator is no_file and not file.is_symlink() and not file.exists()
        wrong = mutation.wrong and not absent_by_right and not target.remade
        try:
            with _limited(), _quiet():
                target.use(copied, inputs)
        except LaaciqError as error:
            return mutation, "refused", str(error)
        except _Hang:
            return mutation, "hang", ""
        except Exception as error:
            return mutation, "traceback", f"{type(error).__name__}: {str(error)[:200]} {_place(error)}"
        return mutation, "wrong, accepted" if wrong else "accepted", ""


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield


def _place(error: Exception) -> str:
    """Where in our code."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/laaciq/" in frame.filename]
    return f"({Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""
