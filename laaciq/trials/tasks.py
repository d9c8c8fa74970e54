"""What a session does, as tasks that a worker can do. A language is measured as a whole, whoever does it: in other batches, sums would end in
other digits.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laaciq.corpus import Passages
from laaciq.engine.progress import Advance
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.grid import Layers
from laaciq.quantization.model import quantize_model
from laaciq.quantization.plan import Plan
from laaciq.scoring.sequences import ScoredPassage
from laaciq.trials.candidate import Candidate
from laaciq.trials.measurement import Measurement, PassageLosses, measure_each, paired, passage_losses

if TYPE_CHECKING:
    from laaciq.trials.session import Session


@dataclass(frozen=True)
class LanguageTask:
    """Uses no stored results."""

    name: str
    reads: tuple[str, ...] = field(default=(), init=False)


@dataclass(frozen=True)
class OriginalLosses(LanguageTask):
    """Losses of the original."""

    prepared: list[ScoredPassage]

    def run(self, session: Session, advance: Advance) -> PassageLosses:
        return passage_losses(session.original, self.prepared, advance=advance)


@dataclass(frozen=True)
class CandidateLosses(LanguageTask):
    """Losses of a candidate, paired with those of the original."""

    candidate: Candidate
    passages: Passages
    prepared: list[ScoredPassage]
    original: PassageLosses

    def run(self, session: Session, advance: Advance) -> Measurement:
        with self.candidate.applied(session.copy(), self.passages.language.code) as model:
            nll = passage_losses(model, self.prepared, advance=advance).nll
        return paired(self.passages, self.original, nll, session.options)


@dataclass(frozen=True)
class SideBySide(LanguageTask):
    """Candidates beside one pass of the original."""

    candidates: list[Candidate]
    passages: Passages

    def run(self, session: Session, advance: Advance) -> list[Measurement]:
        with ExitStack() as stack:
            models = [
                stack.enter_context(candidate.applied(session.copy(number), self.passages.language.code))
                for number, candidate in enumerate(self.candidates)
            ]
            return measure_each(session.original, models, self.passages, session.options, advance=advance)


@dataclass(frozen=True)
class RoundPlan:
    """The layers of a plan that needs no profile, rounded on calibration text."""

    name: str
    plan: Plan
    reads: tuple[str, ...] = field(default=(), init=False)

    def run(self, session: Session, advance: Advance) -> Layers:
        calibration = Calibration(None, session.split.calibration, session.options)
        layers, _ = quantize_model(session.original, self.plan, calibration, progress=session.progress)
        return list(layers)
