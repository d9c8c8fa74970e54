"""How often the 95 % intervals of this tool cover the true value, by simulation.

    python -m benchmarks.coverage --processes 16 --out coverage.json      # all cells; the same command resumes
    python -m benchmarks.coverage --cells '36-*-planted-*' --simulations 200
    python -m benchmarks.coverage --out coverage.json --full              # one row per cell, not one per kind of cell

A cell is `languages-documents-pattern-distribution-text`. Losses by passage are drawn with known means, and go the way that measured ones go:
`Losses.of`, then the estimates that the tool prints. `benchmarks/simulated_losses.py` says how they are drawn.
The Monte Carlo error of a share is printed with the table. D is counted over all languages of a data set, the rest once per data set.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import math
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

import benchmarks.simulated_losses
import laaciq.stats
import laaciq.trials.losses
from benchmarks.simulated_losses import CELLS, COMPARED_TEXTS, Cell, Pair, draw_pair
from laaciq.engine.files import write_text
from laaciq.engine.progress import Progress, TerminalProgress
from laaciq.stats.estimate import LEVEL, Estimate

SIMULATIONS = 1000
# Simulations of one cell that a process does at a time.
CHUNK = 50
# What every cell should be within.
LEAST, MOST = 0.93, 0.97
QUANTITIES = [
    *("D", "mean", "worst", "disparity"),
    *("mean ratio", "worst ratio", "disparity ratio", "worst difference"),
]
# How often equal languages are reported to differ beyond noise.
FALSE_ALARM = "false alarm"


class Counts(BaseModel):
    """Of the simulations of one cell: the sum of the shares of intervals that cover, by quantity, and the sum of their squares."""

    model_config = ConfigDict(extra="forbid")

    simulations: int = 0
    covered: dict[str, float] = {}
    squares: dict[str, float] = {}

    def add(self, shares: dict[str, float]) -> None:
        self.simulations += 1
        for name, share in shares.items():
            self.covered[name] = self.covered.get(name, 0.0) + share
            self.squares[name] = self.squares.get(name, 0.0) + share**2

    def plus(self, other: Counts) -> Counts:
        names = {*self.covered, *other.covered}
        return Counts(
            simulations=self.simulations + other.simulations,
            covered={name: self.covered.get(name, 0.0) + other.covered.get(name, 0.0) for name in names},
            squares={name: self.squares.get(name, 0.0) + other.squares.get(name, 0.0) for name in names},
        )

    def share(self, name: str) -> float:
        return self.covered[name] / self.simulations

    def error(self, name: str) -> float:
        """The standard error of the share."""
        share = self.share(name)
        variance = max(0.0, self.squares[name] / self.simulations - share**2)
        return math.sqrt(variance / self.simulations)


class Results(BaseModel):
    """Counts by cell, all from `code`, the fingerprint of the methods that were simulated."""

    model_config = ConfigDict(extra="forbid")

    code: str
    cells: dict[str, Counts] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--simulations", type=int, default=SIMULATIONS, help="data sets per cell")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="one core each")
    parser.add_argument("--cells", nargs="+", default=["*"], help="names of cells, with * for any text")
    parser.add_argument("--out", type=Path, help="JSON file that finished cells are kept in, and read from")
    parser.add_argument("--full", action="store_true", help="print one row per cell")
    arguments = parser.parse_args()
    if min(arguments.simulations, arguments.processes) < 1:
        parser.error("--simulations and --processes must be at least 1")
    cells = [cell for cell in CELLS if any(fnmatch(cell.name, pattern) for pattern in arguments.cells)]
    if not cells:
        parser.error(f"no cell is called {' or '.join(arguments.cells)}: one is called {CELLS[0].name}")
    try:
        results = read_results(arguments.out)
    except ValueError as error:
        parser.error(str(error))
    simulate(cells, results, arguments.simulations, arguments.processes, out=arguments.out, progress=TerminalProgress())
    chosen = {cell: results.cells[cell.name] for cell in cells}
    print("\n".join(full_table(chosen) if arguments.full else table(chosen)))
    print("\n" + "\n".join(remarks(chosen)))


def read_results(path: Path | None) -> Results:
    code = fingerprint()
    if path is None or not path.exists():
        return Results(code=code)
    try:
        results = Results.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError:
        raise ValueError(f"{path} holds no results of this benchmark: choose another file") from None
    if results.code != code:
        raise ValueError(f"{path} holds results of other methods than the present ones: choose another file")
    return results


def fingerprint() -> str:
    """Of the code that results depend on; comments do not count."""
    files = [Path(module.__file__ or "") for module in (benchmarks.simulated_losses, laaciq.trials.losses)]
    files += sorted(Path(laaciq.stats.__path__[0]).glob("*.py"))
    code = [ast.dump(ast.parse(path.read_text(encoding="utf-8"))) for path in files]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()


def simulate(
    cells: Iterable[Cell], results: Results, simulations: int, processes: int, *, out: Path | None, progress: Progress
) -> None:
    """Fill in what is missing, several cells at a time. A cell is kept once all of its simulations are done."""
    cells = [cell for cell in cells if _simulated(results, cell) < simulations]
    chunks = [
        (cell, range(first, min(first + CHUNK, simulations)))
        for cell in cells
        for first in range(_simulated(results, cell), simulations, CHUNK)
    ]
    partial = {cell: results.cells.get(cell.name, Counts()) for cell in cells}
    # New processes read it when they load numpy: each one is to use one core.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    work = sum(cell.cost * len(numbers) for cell, numbers in chunks)
    context = multiprocessing.get_context("spawn")
    with progress.stage("simulating", work) as advance, ProcessPoolExecutor(processes, context) as pool:
        running = {pool.submit(count, cell, numbers): (cell, numbers) for cell, numbers in chunks}
        for finished in as_completed(running):
            cell, numbers = running[finished]
            partial[cell] = partial[cell].plus(finished.result())
            if partial[cell].simulations >= simulations:
                results.cells[cell.name] = partial[cell]
                if out is not None:
                    write_text(out, results.model_dump_json(indent=1))
            advance(cell.cost * len(numbers))


def _simulated(results: Results, cell: Cell) -> int:
    return results.cells[cell.name].simulations if cell.name in results.cells else 0


def count(cell: Cell, numbers: Iterable[int]) -> Counts:
    """Simulations with these numbers; each number is one data set, whoever draws it."""
    counts = Counts()
    for number in numbers:
        counts.add(covered(cell, draw_pair(cell, number)))
    return counts


def covered(cell: Cell, pair: Pair) -> dict[str, float]:
    """Which estimates of one simulated data set cover what was simulated: 1 or 0, for D the share of languages."""
    left, right, true_left, true_right = pair.left, pair.right, pair.true_left, pair.true_right
    disparity = right.disparity().estimate
    shares = {
        "D": float(np.mean([_covers(e, t) for e, t in zip(right.by_language().values(), true_right, strict=True)])),
        "mean": _covers(right.mean(), true_right.mean()),
        "worst": _covers(right.worst()[1], true_right.max()),
        "disparity": _covers(disparity, _range(true_right)),
    }
    if cell.pattern == "equal":
        shares[FALSE_ALARM] = float(disparity.low > 0)
    if cell.text in COMPARED_TEXTS:
        shares |= {
            "mean ratio": _covers(left.mean_ratio(right), true_left.mean() / true_right.mean()),
            "worst ratio": _covers(left.worst_ratio(right), true_left.max() / true_right.max()),
            "worst difference": _covers(left.worst_difference(right), true_left.max() - true_right.max()),
        }
        if cell.pattern != "equal":
            shares["disparity ratio"] = _covers(left.disparity_ratio(right), _range(true_left) / _range(true_right))
    return shares


def _covers(estimate: Estimate, truth: float) -> float:
    return float(estimate.low <= truth <= estimate.high)


def _range(losses: np.ndarray) -> float:
    """max D − min D."""
    return float(np.ptp(np.expm1(losses)))


def table(counts: dict[Cell, Counts]) -> list[str]:
    """One row per distribution, number of documents and pattern: the lowest and the highest coverage over languages and texts."""
    kinds = dict.fromkeys((cell.distribution, cell.documents, cell.pattern) for cell in counts)
    lines = _heading(["losses", "documents", "languages"])
    for kind in kinds:
        members = [counts[cell] for cell in counts if (cell.distribution, cell.documents, cell.pattern) == kind]
        shares = [[c.share(name) for c in members if name in c.covered] for name in (*QUANTITIES, FALSE_ALARM)]
        lines.append(_row([*map(str, kind), *(_between(values) for values in shares)]))
    return lines


def full_table(counts: dict[Cell, Counts]) -> list[str]:
    lines = _heading(["cell"])
    for cell, of_cell in counts.items():
        shares = [[of_cell.share(name)] if name in of_cell.covered else [] for name in (*QUANTITIES, FALSE_ALARM)]
        lines.append(_row([cell.name, *(_between(values) for values in shares)]))
    return lines


def _heading(first: list[str]) -> list[str]:
    columns = [*QUANTITIES, FALSE_ALARM]
    return [_row([*first, *columns]), "|" + "---|" * len(first) + "---:|" * len(columns)]


def _row(entries: list[str]) -> str:
    return f"| {' | '.join(entries)} |"


def _between(shares: list[float]) -> str:
    if not shares:
        return "–"
    low, high = f"{min(shares):.3f}", f"{max(shares):.3f}"
    return low if low == high else f"{low} to {high}"


def remarks(counts: dict[Cell, Counts]) -> Iterator[str]:
    """How exact the table is, and which cells lie outside."""
    simulations = min(c.simulations for c in counts.values())
    error = math.sqrt(LEVEL * (1 - LEVEL) / simulations)
    yield (
        f"{len(counts)} cells, {simulations:,} simulations or more each; at {LEVEL:g} the Monte Carlo standard error of a cell is {error:.3f} "
        "(less for D)."
    )
    entries = [(cell, name, c) for cell, c in counts.items() for name in c.covered if name != FALSE_ALARM]
    within = sum(LEAST <= c.share(name) <= MOST for _, name, c in entries)
    above = sum(c.share(name) > MOST for _, name, c in entries)
    yield f"Of {len(entries)} shares {within} are between {LEAST:g} and {MOST:g}, {above} above."
    below = [(cell, name, c) for cell, name, c in entries if c.share(name) < LEAST]
    surely = [(cell, name, c) for cell, name, c in below if c.share(name) + 2 * c.error(name) < LEAST]
    yield f"Below {LEAST:g}: {len(below)}, of which {len(surely)} by more than two standard errors{':' if surely else '.'}"
    for cell, name, c in surely:
        yield f"- {cell.name}, {name}: {c.share(name):.3f} ± {c.error(name):.3f}"


if __name__ == "__main__":
    main()
