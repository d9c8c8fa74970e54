"""Commands that are killed, commands whose disk fails, and damaged inputs.

    python -m benchmarks.torture kills 1000      # at random moments
    python -m benchmarks.torture faults          # at every write
    python -m benchmarks.torture fuzz 10000      # the cases of tests/fuzz
    python -m benchmarks.torture table           # what was done so far

After kills and faults a command is run again. Nothing is lost if it finishes, if what it prints and writes as JSON and its checkpoints equal
those of an undisturbed command, and if nothing is left behind. A damaged input must have a result or one of our errors. Run again, the torture
goes on from where it was; `--folder` is where it works.
"""

from __future__ import annotations

import os

# Before anything heavy is imported: processes are forked, and threads of libraries do not survive that.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import count_faults, fault_rounds
from benchmarks.forked import COMMANDS, prepare_commands
from benchmarks.fuzzed import fuzz_rounds, fuzz_table
from benchmarks.kills import kill_rounds
from benchmarks.outcomes import Round, append_round, read_rounds, table
from laaciq.engine.progress import duration

_LINE_SECONDS = 30.0
_TABLES = {"kills": table, "faults": table, "fuzz": fuzz_table}


def main() -> None:
    options = _options()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if options.what != "table":
        _torture(options.what, options.number, folder, options.commands)
    rounds = {what: read_rounds(folder / f"{what}.jsonl") for what in _TABLES}
    for what, made in rounds.items():
        if made:
            print(f"\n{what.capitalize()}:\n\n{_TABLES[what](made)}")
            for failed in made:
                if failed.failure is not None:
                    print(f"- {failed.command}, {', '.join(failed.injected)}: {failed.failure}")
    if any(made.failure is not None for known in rounds.values() for made in known):
        sys.exit(1)


def _torture(what: str, number: int | None, folder: Path, commands: tuple[str, ...]) -> None:
    path = folder / f"{what}.jsonl"
    known = read_rounds(path)
    done = sum(made.injected.total() for made in known)
    rounds: Iterator[Round]
    if what == "fuzz":
        aim, rounds = number or 10_000, fuzz_rounds(folder, done)
    elif what == "kills":
        prepare_commands(commands, folder)
        aim, rounds = number or 1000, kill_rounds(folder, len(known), commands)
    else:
        prepare_commands(commands, folder)
        aim = min(number or sys.maxsize, count_faults(folder, commands))
        rounds = fault_rounds(folder, len(known), commands)
    began, before, told = time.monotonic(), done, 0.0
    while done < aim:
        made = next(rounds)
        append_round(path, made)
        done += made.injected.total()
        if made.failure is not None:
            print(f"{made.command}, {', '.join(made.injected)}: {made.failure}", flush=True)
        passed = time.monotonic() - began
        if passed - told > _LINE_SECONDS or done >= aim:
            told = passed
            left = passed / max(1, done - before) * (aim - done)
            print(f"{what}: {done} of {aim}, {duration(passed)}, about {duration(max(0.0, left))} left", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*_TABLES, "table"])
    parser.add_argument("number", nargs="?", type=int)
    parser.add_argument("--folder", type=Path, default=Path("laaciq-runs/torture"))
    parser.add_argument("--commands", type=lambda names: tuple(names.split(",")), default=tuple(COMMANDS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
