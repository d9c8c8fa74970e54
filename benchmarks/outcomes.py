"""What was done to commands, and what came of it: kept line by line, and counted in a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Round:
    """One command from its beginning to its end. `injected` counts what happened to it; `failure` says what was lost or wrong then."""

    command: str
    injected: Counter[str] = field(default_factory=Counter)
    failure: str | None = None


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
