"""What was done to commands, and what came of it: kept line by line, and counted in a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path


@dataclass
class Round:
    """One command from its beginning to its end. `injected` counts what happened to it; `failure` says what was lost or wrong then."""

    command: str
    injected: Counter[str] = field(default_factory=Counter)
    failure: str | None = None


@dataclass(frozen=True)
class Part:
    """One of `parts` processes that share the work, counted from 0."""

    index: int = 0
    parts: int = 1

    def numbers(self, done: int) -> Iterator[int]:
        """Numbers of the rounds that this process makes, after those that it has done. Without an end."""
        return count(self.index + self.parts * done, self.parts)

    def share(self, whole: int) -> int:
        """How many of a whole number are this process's."""
        return len(range(self.index, whole, self.parts))


def read_rounds(path: Path) -> list[Round]:
    """Those of earlier times."""
    if not path.exists():
        return []
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Round(record["command"], Counter(record["injected"]), record["failure"]) for record in records]


def append_round(path: Path, made: Round) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"command": made.command, "injected": made.injected, "failure": made.failure}) + "\n")


def table(rounds: Iterable[Round]) -> str:
    """One row for each kind, one column for each command."""
    known = list(rounds)
    commands = list(dict.fromkeys(made.command for made in known))
    counts = {command: Counter[str]() for command in commands}
    for made in known:
        counts[made.command] += made.injected
    kinds = sorted({kind for count in counts.values() for kind in count})
    lines = [["injected", *commands, "all"], ["---", *["---:"] * (len(commands) + 1)]]
    rows = {kind: [counts[command][kind] for command in commands] for kind in kinds}
    rows["**all**"] = [count.total() for count in counts.values()]
    rows["finished, results equal"] = [
        sum(made.command == command and made.failure is None for made in known) for command in commands
    ]
    rows["**lost or wrong**"] = [
        sum(made.command == command and made.failure is not None for made in known) for command in commands
    ]
    lines += [[kind, *map(str, row), str(sum(row))] for kind, row in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
