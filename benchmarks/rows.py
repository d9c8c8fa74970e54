"""Rows of a benchmark: one method on one draw of calibration text, with its size, its time and what it cost every language.

Each row is a file, so that an interrupted benchmark resumes, and tables are printed from files alone. Methods that read no text are the same
in every draw; their rows lie in a separate folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from laaciq.corpus import Texts
from laaciq.engine.run_folder import RunFolder
from laaciq.engine.store import key_of
from laaciq.evaluation.degradation import COLLAPSE_FACTOR
from laaciq.models import LanguageModel
from laaciq.stats.estimate import Estimate
from laaciq.strict import StrictModel
from laaciq.trials.candidate import Candidate
from laaciq.trials.losses import Losses
from laaciq.trials.measurement import Measurement
from laaciq.trials.session import Session

TEXT_FREE = "text-free"
Statistic = Literal["worst", "disparity", "mean"]
# ΔNLL per token beyond which a language has collapsed.
COLLAPSED = float(np.log(COLLAPSE_FACTOR))


class MeasuredTexts(StrictModel):
    """One test text, by language."""

    parallel: bool
    by_language: dict[str, Measurement]


class MeasuredRow(StrictModel):
    """`seconds` is the time of quantizing, and `weight_error` ‖Ŵ − W‖ / ‖W‖ over the linear layers of the blocks, as they serve the first
    language. Bits per weight are counted in full: codes, scales, zero points, padding."""

    version: Literal[1] = 1
    name: str
    block_bits_per_weight: float
    model_bits_per_weight: float
    seconds: float
    weight_error: float
    tests: dict[str, MeasuredTexts]


@dataclass(frozen=True)
class SizedCandidate:
    candidate: Candidate
    block_bits_per_weight: float
    model_bits_per_weight: float
    seconds: float


@dataclass
class DrawRows:
    """The rows of one draw, or of the methods that read no text. `settings` are the options that all rows of the folder share. The session
    holds the calibration text; `tests` are the test texts by name."""

    folder: Path
    settings: Mapping[str, object]
    session: Session
    tests: dict[str, Texts]
    overwrite: bool = False

    def __post_init__(self) -> None:
        self.store = RunFolder(self.folder, description=self.settings, overwrite=self.overwrite)

    def finish(self) -> None:
        """All rows are there: others may write to the folder."""
        self.store.finish()
        self.store.close()

    def row(self, name: str, quantize: Callable[[str], SizedCandidate]) -> MeasuredRow:
        """Read where it is there, else quantized and measured. `quantize` receives the key of its weights: other draws have the same names, and
        may be measured on the same copy of the model.
        """
        split, session = self.session.split, self.session
        texts = [part.fingerprint for part in (split.calibration, split.validation, *self.tests.values())]
        key = key_of(name, self.settings, session.folder.fingerprint, texts, session.options.model_dump())

        def compute() -> MeasuredRow:
            began = time.perf_counter()
            row = self._measured(name, quantize(key))
            session.progress.say(f"{self.folder.name}: {name}, {time.perf_counter() - began:.0f} s")
            return row

        return self.store.result(f"rows/{name}.json", MeasuredRow, key, compute)

    def _measured(self, name: str, quantized: SizedCandidate) -> MeasuredRow:
        session, candidate = self.session, quantized.candidate
        first = next(iter(self.tests.values())).languages[0]
        with candidate.applied(session.copy(), first) as model:
            error = _weight_error(session.original, model)
        tests = {
            test: MeasuredTexts(parallel=texts.parallel, by_language=session.losses(candidate, texts, part=test))
            for test, texts in self.tests.items()
        }
        return MeasuredRow(
            name=name,
            block_bits_per_weight=quantized.block_bits_per_weight,
            model_bits_per_weight=quantized.model_bits_per_weight,
            seconds=quantized.seconds,
            weight_error=error,
            tests=tests,
        )


@torch.no_grad()
def _weight_error(original: LanguageModel, quantized: LanguageModel) -> float:
    pairs = [(linear.matrix, quantized.anatomy.matrices[linear.name]) for linear in original.anatomy.linears]
    error = sum(float((after - before).square().sum()) for before, after in pairs)
    return (error / sum(float(before.square().sum()) for before, _ in pairs)) ** 0.5


@dataclass(frozen=True)
class MeasuredMethod:
    """One method over all draws of calibration text; one that reads no text has a single draw. Sizes and seconds are means."""

    name: str
    losses: Losses
    block_bits_per_weight: float
    model_bits_per_weight: float
    seconds: float

    @classmethod
    def of(cls, draws: list[MeasuredRow], test: str) -> MeasuredMethod:
        results = [row.tests[test] for row in draws]
        first = results[0].by_language
        losses = Losses.of(
            {code: np.stack([result.by_language[code].loss for result in results]) for code in first},
            {code: measured.tokens for code, measured in first.items()},
            {code: measured.documents for code, measured in first.items()},
            parallel=results[0].parallel,
            seed=0,
        )
        return cls(
            draws[0].name,
            losses,
            float(np.mean([row.block_bits_per_weight for row in draws])),
            float(np.mean([row.model_bits_per_weight for row in draws])),
            float(np.mean([row.seconds for row in draws])),
        )

    @property
    def worst_language(self) -> str:
        return self.losses.worst()[0]

    @property
    def collapsed(self) -> int:
        """How many languages have collapsed."""
        return int((self.losses.per_token > COLLAPSED).sum())

    def estimate(self, statistic: Statistic) -> Estimate | None:
        """ΔNLL per token of the worst language or the mean, or max D − min D, which there is none of where a language has collapsed."""
        if statistic == "mean":
            return self.losses.mean()
        if statistic == "worst":
            return self.losses.worst()[1]
        return None if self.collapsed else self.losses.disparity().estimate

    def ratio(self, other: MeasuredMethod, statistic: Statistic) -> Estimate | None:
        """Over that of `other`, paired; no ratio of disparities where a language has collapsed on either side."""
        if statistic == "mean":
            return self.losses.mean_ratio(other.losses)
        if statistic == "worst":
            return self.losses.worst_ratio(other.losses)
        return None if self.collapsed or other.collapsed else self.losses.disparity_ratio(other.losses)


def read_rows(folder: Path) -> dict[str, MeasuredRow]:
    """Those of one draw, by name."""
    rows = (
        MeasuredRow.model_validate_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("rows/*.json"))
    )
    return {row.name: row for row in rows}


def read_draws(out: Path) -> dict[str, list[MeasuredRow]]:
    """Every row with all its draws, the methods that read no text first. A row that some draw lacks is named and left out."""
    draws = [read_rows(folder) for folder in sorted(out.glob("draw-*"))]
    complete = {name: [row] for name, row in read_rows(out / TEXT_FREE).items()}
    for name in dict.fromkeys(name for draw in draws for name in draw):
        there = [draw[name] for draw in draws if name in draw]
        if len(there) == len(draws):
            complete[name] = there
        else:
            print(f"{name}: left out, as {len(there)} of {len(draws)} draws have it")
    if not complete:
        sys.exit(f"{out} has no rows to print")
    return complete


def interval(estimate: Estimate | None, decimals: int) -> str:
    """`0.12 [0.10, 0.15]`, or a dash where there is nothing to estimate."""
    if estimate is None:
        return "–"
    value, low, high = (_number(part, decimals) for part in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _number(value: float, decimals: int) -> str:
    # z: a small loss below zero is 0.000, not -0.000.
    return f"{value:z.{decimals}f}" if np.isfinite(value) else "∞" if value > 0 else "−∞"
