"""Commands that are killed, commands whose disk fails, and damaged inputs.

    python -m benchmarks.torture kills 1000      # at random moments
    python -m benchmarks.torture faults          # at every write
    python -m benchmarks.torture fuzz 10000      # the cases of tests/fuzz
    python -m benchmarks.torture table           # what was done so far
    python -m benchmarks.torture faults --part 3/16          # the third of sixteen processes that share the faults

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
from benchmarks.fuzzed import CASES, fuzz_rounds, fuzz_table
from benchmarks.kills import kill_rounds
from benchmarks.outcomes import Part, Round, append_round, read_rounds, table
from laaciq.engine.progress import duration

_LINE_SECONDS = 30.0
_TABLES = {"kills": table, "faults": table, "fuzz": fuzz_table}


def main() -> None:
    options = _options()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if options.what != "table":
        _torture(options.what, options.number, options.part, folder, options.commands)
    # Those of all parts, which work in separate folders.
    rounds = {what: [made for path in folder.rglob(f"{what}.jsonl") for made in read_rounds(path)] for what in _TABLES}
    for what, made in rounds.items():
        if made:
            print(f"\n{what.capitalize()}:\n\n{_TABLES[what](made)}")
            for failed in made:
                if failed.failure is not None:
                    print(f"- {failed.command}, {', '.join(failed.injected)}: {failed.failure}")
    if any(made.failure is not None for known in rounds.values() for made in known):
        sys.exit(1)


def _torture(what: str, number: int | None, part: Part, folder: Path, commands: tuple[str, ...]) -> None:
    if part.parts > 1:
        folder = folder / f"part-{part.index + 1}-of-{part.parts}"
        folder.mkdir(exist_ok=True)
    path = folder / f"{what}.jsonl"
    known = read_rounds(path)
    done, numbers = sum(made.injected.total() for made in known), part.numbers(len(known))
    rounds: Iterator[Round]
    if what == "fuzz":
        aim, rounds = CASES * part.share(-(-(number or 10_000) // CASES)), fuzz_rounds(folder, numbers)
    elif what == "kills":
        prepare_commands(commands, folder)
        aim, rounds = part.share(number or 1000), kill_rounds(folder, numbers, commands)
    else:
        prepare_commands(commands, folder)
        aim = part.share(min(number or sys.maxsize, count_faults(folder, commands)))
        rounds = fault_rounds(folder, numbers, commands)
    began, before, reported = time.monotonic(), done, 0.0
    # A fault less than counted may come: the sizes of files with times in them differ from run to run.
    while done < aim and (made := next(rounds, None)) is not None:
        append_round(path, made)
        done += made.injected.total()
        if made.failure is not None:
            print(f"{made.command}, {', '.join(made.injected)}: {made.failure}", flush=True)
        passed = time.monotonic() - began
        if passed - reported > _LINE_SECONDS or done >= aim:
            reported = passed
            left = passed / max(1, done - before) * (aim - done)
            print(f"{what}: {done} of {aim}, {duration(passed)}, about {duration(max(0.0, left))} left", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*_TABLES, "table"])
    parser.add_argument("number", nargs="?", type=int)
    parser.add_argument("--folder", type=Path, default=Path("laaciq-runs/torture"))
    parser.add_argument("--commands", type=lambda names: tuple(names.split(",")), default=tuple(COMMANDS))
    parser.add_argument("--part", type=_part, default=Part(), help="such as 3/16, for one of several processes")
    return parser.parse_args()


def _part(words: str) -> Part:
    index, _, parts = words.partition("/")
    if not (index.isdecimal() and parts.isdecimal() and 1 <= int(index) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{words!r} is not a part such as 3/16")
    return Part(int(index) - 1, int(parts))


if __name__ == "__main__":
    main()
