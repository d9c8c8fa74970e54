"""Damaged inputs: the cases of tests/fuzz, as many as wanted."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

from benchmarks.outcomes import Round

# Those of the test suite have seed 0.
SEED = 1
# So many cases make a round.
CASES = 50


def fuzz_rounds(folder: Path, numbers: Iterator[int]) -> Iterator[Round]:
    """One for each number. What is counted is how cases ended; a bad end is a failure."""
    # Here, since kills and faults fork, and must not have run models before.
    from tests.fuzz.harness import fuzz
    from tests.fuzz.inputs import make_inputs

    with tempfile.TemporaryDirectory(dir=folder) as place:
        inputs = make_inputs(Path(place))
        for number in numbers:
            counts = fuzz(CASES, SEED, first=CASES * number, inputs=inputs)
            ends = Counter[str]()
            for (_, outcome), cases in counts.outcomes.items():
                ends[outcome] += cases
            yield Round("fuzz", ends, "; ".join(counts.failures) or None)


def fuzz_table(rounds: Iterable[Round]) -> str:
    from tests.fuzz.harness import Outcome

    ends = sum((made.injected for made in rounds), Counter[str]())
    rows = [(outcome, ends[outcome]) for outcome in get_args(Outcome)]
    lines = ["| outcome | inputs |", "| --- | ---: |", *(f"| {outcome} | {number} |" for outcome, number in rows)]
    return "\n".join([*lines, f"| **all** | {ends.total()} |"])
