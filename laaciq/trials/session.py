"""A session: an opened model whose candidates are measured, language by language. Everything that measures uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from laaciq.corpus import Passages, Texts
from laaciq.engine.progress import Advance
from laaciq.engine.workers import Pending, Task, ThisProcess, Workers
from laaciq.scoring.sequences import ScoredPassage, prepare_all
from laaciq.trials.candidate import Candidate, Portable
from laaciq.trials.measurement import Measurement, PassageLosses, measure_pooled
from laaciq.trials.opened_model import OpenedModel
from laaciq.trials.tasks import CandidateLosses, OriginalLosses, SideBySide

Result = TypeVar("Result", bound=BaseModel)
Value = TypeVar("Value")
# A task, and what to do with its result.
Unit = tuple[Task[Any], Callable[[Any], object]]
ORIGINAL = "original"


@dataclass
class Session(OpenedModel):
    """Measurements are kept in the store under a key, and not made again."""

    def by_language(
        self,
        name: str,
        texts: Texts,
        kind: type[Result],
        task: Callable[[str, list[ScoredPassage]], Task[Result]],
        *,
        key: object,
        title: str = "measuring",
        passes: int = 1,
    ) -> dict[str, Result]:
        """Results of `task(language, prepared passages)` by language, computed where `name` and `key` are not in the store. Tasks count scored
        tokens over all `passes`.
        """
        pending = self.pending(name, key, texts)
        prepared = {code: self.prepared(texts[code]) for code in pending}
        units = [self._unit(name, code, texts, key, task(code, prepared[code])) for code in pending]
        self.hand_out(title, units, total=passes * sum(map(_tokens, prepared.values())))
        return {code: self.store.read(_file(name, code), kind) for code in texts.languages}

    def hand_out(self, title: str, units: Sequence[Unit], *, total: float, workers: Workers | None = None) -> None:
        """Have tasks done, as one stage of progress."""
        doing = workers or self.workers
        with self.progress.stage(title, total, working=lambda: doing.working) as advance:
            handed = [self.submit(task, advance=advance, done=done, workers=workers) for task, done in units]
            for pending in handed:
                pending.result()

    def submit(
        self,
        task: Task[Value],
        *,
        advance: Advance = lambda units: None,
        done: Callable[[Value], object] = lambda result: None,
        workers: Workers | None = None,
        first: bool = False,
    ) -> Pending[Value]:
        """Hand out a task, `first` before all that wait; this process does it when its result is needed. `done` receives the result."""
        doing = workers or self.workers
        if doing.apart:
            self.reserve_workers()
        return doing.submit(task, self, advance=advance, done=done, first=first)

    def _unit(self, name: str, code: str, texts: Texts, key: object, task: Task[Result]) -> Unit:
        """A task whose result is kept for a language."""
        return task, partial(self._keep, _file(name, code), self.key(texts[code], key))

    def prepared(self, passages: Passages) -> list[ScoredPassage]:
        return prepare_all(self.original, passages, self.options)

    def original_losses(self, texts: Texts, *, part: str = "test") -> dict[str, PassageLosses]:
        """Losses of the original by language."""

        def task(code: str, prepared: list[ScoredPassage]) -> OriginalLosses:
            return OriginalLosses(f"{ORIGINAL}, {code}", prepared)

        return self.by_language(f"{ORIGINAL}/{part}", texts, PassageLosses, task, key=ORIGINAL)

    def losses(self, candidate: Candidate, texts: Texts, *, part: str = "test") -> dict[str, Measurement]:
        """Losses of a candidate and of the original, which is run once for all candidates. There is no divergence; it takes half the time
        of `measure`.
        """
        return self.losses_of_each([candidate], texts, part=part)[0]

    def losses_of_each(
        self, candidates: Sequence[Candidate], texts: Texts, *, part: str = "test"
    ) -> list[dict[str, Measurement]]:
        """Losses of candidates, one after the other; workers share all of them."""
        original = self.original_losses(texts, part=part)
        pending = [(candidate, self._pending(candidate, texts, part)) for candidate in candidates]
        prepared = {code: self.prepared(texts[code]) for code in {code for _, codes in pending for code in codes}}
        units = [
            self._unit(
                f"{candidate.name}/{part}", code, texts, candidate.key,
                CandidateLosses(f"{candidate.name}, {code}", candidate, texts[code], prepared[code], original[code]),
            )
            for candidate, codes in pending
            for code in codes
        ]  # fmt: skip
        tokens = sum(_tokens(prepared[code]) for _, codes in pending for code in codes)
        self.hand_out("measuring", units, total=tokens, workers=self._able(candidates))
        return [self._read(candidate, texts, part) for candidate in candidates]

    def measure(
        self, candidates: Sequence[Candidate], texts: Texts, *, part: str = "test"
    ) -> list[dict[str, Measurement]]:
        """Measurements of candidates by language: losses, divergence and agreement. One pass of the original serves all candidates, at the
        cost of one copy of the model each.
        """
        pending = [self._pending(candidate, texts, part) for candidate in candidates]
        missing = {
            code: [candidate for candidate, codes in zip(candidates, pending, strict=True) if code in codes]
            for code in texts.languages
        }
        self._measure([(lacking, texts[code]) for code, lacking in missing.items() if lacking], part)
        return [self._read(candidate, texts, part) for candidate in candidates]

    def measure_each(
        self, candidates: Sequence[Candidate], texts: Texts, *, part: str = "test"
    ) -> list[dict[str, Measurement]]:
        """Measurements of candidates, one after the other, each beside a pass of the original; workers share all of them."""
        self._measure([([c], texts[code]) for c in candidates for code in self._pending(c, texts, part)], part)
        return [self._read(candidate, texts, part) for candidate in candidates]

    def _measure(self, pairs: list[tuple[list[Candidate], Passages]], part: str) -> None:
        """Candidates side by side on each of the passages."""

        def keep(candidates: list[Candidate], passages: Passages, measurements: list[Measurement]) -> None:
            for candidate, measurement in zip(candidates, measurements, strict=True):
                self._keep_trial(candidate, measurement, passages, part)

        units: list[Unit] = [
            (SideBySide(_words(candidates, passages), candidates, passages), partial(keep, candidates, passages))
            for candidates, passages in pairs
        ]
        workers = self._able([candidate for candidates, _ in pairs for candidate in candidates])
        self.hand_out("measuring", units, total=sum(len(passages) for _, passages in pairs), workers=workers)

    def _able(self, candidates: Iterable[Candidate]) -> Workers:
        """The workers, if these candidates can be sent to them."""
        return self.workers if all(isinstance(candidate, Portable) for candidate in candidates) else ThisProcess()

    def measure_pooled(self, candidate: Candidate, texts: Texts, *, part: str) -> dict[str, Measurement]:
        """Like `measure`, with all languages in one pass under the same weights. Faster for short texts, but nothing is stored before the
        end.
        """
        if self._pending(candidate, texts, part):
            # All languages, even if a killed process kept some: in other batches, others would differ in their last digits.
            pooled = list(texts.by_language.values())
            with candidate.applied(self.copy(), pooled[0].language.code) as model:
                measurements = measure_pooled(self.original, model, pooled, self.options, progress=self.progress)
            for measurement, passages in zip(measurements, pooled, strict=True):
                self._keep_trial(candidate, measurement, passages, part)
        return self._read(candidate, texts, part)

    def pending(self, name: str, key: object, texts: Texts) -> list[str]:
        """Languages that have no result of this name and key yet."""
        return [
            code
            for code, passages in texts.by_language.items()
            if not self.store.valid(_file(name, code), self.key(passages, key))
        ]

    def _pending(self, candidate: Candidate, texts: Texts, part: str) -> list[str]:
        return self.pending(f"{candidate.name}/{part}", candidate.key, texts)

    def _keep_trial(self, candidate: Candidate, measurement: Measurement, passages: Passages, part: str) -> None:
        self._keep(
            _file(f"{candidate.name}/{part}", measurement.language), self.key(passages, candidate.key), measurement
        )

    def _keep(self, file: str, key: str, result: BaseModel) -> None:
        self.store.keep(file, result, key)

    def _read(self, candidate: Candidate, texts: Texts, part: str) -> dict[str, Measurement]:
        return {code: self.store.read(_file(f"{candidate.name}/{part}", code), Measurement) for code in texts.languages}


def _file(name: str, code: str) -> str:
    """Name of a result in the store."""
    return f"trials/{name.replace(' ', '-')}/{code}.json"


def _tokens(prepared: list[ScoredPassage]) -> int:
    return sum(passage.scored_tokens for passage in prepared)


def _words(candidates: list[Candidate], passages: Passages) -> str:
    return f"{' and '.join(candidate.name for candidate in candidates)}, {passages.language.code}"
