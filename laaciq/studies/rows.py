"""Rows of a comparison: each method, of a library or ours, becomes a candidate, is measured on test text, and is stored."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import metadata
from pathlib import Path

import numpy as np

from laaciq.backends.candidate import BackendCandidate
from laaciq.backends.contract import Backend
from laaciq.backends.size import bits_per_weight, left_alone_in_blocks
from laaciq.engine.environment import version_words
from laaciq.engine.progress import Advance
from laaciq.engine.store import portable_key_of
from laaciq.errors import BadOption, LaaciqError, MissingExtra, WorkerDied, WriteFailed
from laaciq.evaluation import Evaluation
from laaciq.evaluation.trial import evaluate_trial
from laaciq.models.checks import check_finite
from laaciq.options import WeightOptions
from laaciq.planning.decision import SERVED_PASSAGES, calibrate, decide
from laaciq.planning.rules import served_languages
from laaciq.quantization.plan import Plan
from laaciq.quantization.stored_layers import StoredLayers
from laaciq.studies.compared_methods import ComparedMethod, find_compared_method
from laaciq.studies.comparison import Made, Row
from laaciq.trials.candidate import Candidate, InMemory
from laaciq.trials.session import Session


@dataclass
class Rows:
    """Rows of one model, one set of texts and one number of bits."""

    session: Session
    bits: int

    def key(self, method: ComparedMethod) -> str:
        """The key of a row: what it is made from and measured on, without the software environment."""
        split = self.session.split
        read = (split.calibration.fingerprint, split.validation.fingerprint) if method.reads_text else None
        measured = (self.session.folder.fingerprint, split.test.fingerprint, self.session.options.model_dump())
        layout = Evaluation.model_fields["version"].default
        return portable_key_of("compare", layout, measured, method.name, self.bits, read)

    def rows(self, methods: Sequence[ComparedMethod]) -> list[Row]:
        """Rows in this order, read where they are stored. A failed row is tried again. Workers make one row each at a time."""
        session = self.session
        rows = {method.name: row for method in methods if (row := self._stored(method)) is not None}
        tried = [method for method in methods if method.name not in rows or rows[method.name].reason is not None]
        for method in methods:
            if method not in tried:
                session.progress.say(f"{method.name}: already computed.")
        with self._shown(len(tried)) as advance:
            handed = [
                (method, session.submit(self._task(method), advance=advance, done=partial(self._keep, method)))
                for method in tried
            ]
            for method, pending in handed:
                try:
                    row = pending.result()
                except WorkerDied as error:
                    row = _failed(_empty(method, self.bits), error)
                    self._keep(method, row)
                # An error of an installed library says more.
                rows[method.name] = rows.get(method.name, row) if row.missing else row
        return [rows[method.name] for method in methods]

    def _stored(self, method: ComparedMethod) -> Row | None:
        store, key = self.session.store, self.key(method)
        return store.read(_file(method.name, key), Row) if store.valid(_file(method.name, key), key) else None

    def _shown(self, count: int) -> AbstractContextManager[Advance]:
        """Progress of workers, row by row. In this process, every row shows stages of its own."""
        session = self.session
        if session.workers.apart:
            return session.progress.stage("rows", count, working=lambda: session.workers.working)
        return nullcontext(lambda units: None)

    def _task(self, method: ComparedMethod) -> RowTask:
        return RowTask(method.name, self.bits, self.key(method))

    def _keep(self, method: ComparedMethod, row: Row) -> None:
        if row.reason is not None:
            self.session.progress.say(f"{method.name}: {row.reason}")
        if not row.missing:
            key = self.key(method)
            self.session.store.keep(_file(method.name, key), row, key)

    def others(self, folder: Path, shown: list[Row]) -> list[Row]:
        """Stored rows in `folder` of other methods, for the same model and texts."""
        store, rows = self.session.store, []
        for path in sorted((folder / "rows").glob("*.json")):
            name = path.stem.rpartition("-")[0]
            if name in {row.method for row in shown}:
                continue
            try:
                key = self.key(find_compared_method(name))
            except BadOption:  # written by another version, which knew other methods
                continue
            if path.name == Path(_file(name, key)).name and store.valid(_file(name, key), key):
                rows.append(store.read(_file(name, key), Row))
        return rows

    def compute(self, method: ComparedMethod, key: str) -> Row:
        """The row, or one that says why it failed."""
        row = _empty(method, self.bits)
        try:
            made, candidate = self._make(method, key)
            test = self.session.split.test
            (measured,) = self.session.measure([candidate], test)
            evaluation = evaluate_trial(self.session, measured, test, quantized=f"{method.name}, {self.bits} bits")
        except WriteFailed:  # no fault of the method
            raise
        except (Exception, SystemExit) as error:  # a library may raise anything: that is what its row says
            return _failed(row, error)
        return row.model_copy(update={"made": made, "evaluation": evaluation})

    def _make(self, method: ComparedMethod, key: str) -> tuple[Made, Candidate]:
        # Libraries may print; standard output is for results.
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("default")
            made, candidate = (
                self._ours(method, key) if method.backend is None else self._theirs(method.backend, method.name, key)
            )
            with candidate.applied(self.session.copy(), self.session.split.test.languages[0]) as quantized:
                check_finite(quantized.module, method.name)
        notes = dict.fromkeys(str(warning.message) for warning in caught if warning.category is UserWarning)
        return made.model_copy(update={"notes": list(notes)}), candidate

    def _theirs(self, backend: Backend, name: str, key: str) -> tuple[Made, Candidate]:
        self.session.copy().require_whole()
        anatomy = self.session.original.anatomy
        candidate = BackendCandidate(
            name, key, self.session.original, backend, self.bits, lambda: self._calibration_passages
        )
        result, seconds = candidate.quantized
        block_bits, model_bits = bits_per_weight(result, anatomy)
        made = Made(
            by=f"{_version(backend.library)}, {version_words()}",
            settings=result.settings,
            block_bits_per_weight=block_bits,
            model_bits_per_weight=model_bits,
            layers=len(anatomy.linears),
            left_alone=left_alone_in_blocks(result, anatomy),
            seconds=seconds,
        )
        return made, candidate

    def _ours(self, method: ComparedMethod, key: str) -> tuple[Made, Candidate]:
        session, options = self.session, method.options(self.bits)
        began = time.perf_counter()
        calibration = calibrate(session, options, profile=f"profiles/{method.method}.json")
        plan = decide(session, options, calibration).plans.first
        layers, others = session.quantized(plan, calibration)
        quantized = StoredLayers.of(layers, session.original.device), others
        made = Made(
            by=version_words(),
            settings=_settings(plan, options),
            block_bits_per_weight=plan.size.block_bits_per_weight,
            model_bits_per_weight=plan.size.model_bits_per_weight,
            layers=len(session.original.anatomy.linears),
            seconds=time.perf_counter() - began,
        )
        return made, InMemory(method.name, key, plan, lambda: quantized)

    @cached_property
    def _calibration_passages(self) -> list[str]:
        """Calibration and validation text of the served languages, shuffled. Everything that a library reads is calibration text."""
        session, split = self.session, self.session.split
        profile = session.profile(split.calibration.spread(SERVED_PASSAGES), name="profiles/served.json")
        served = served_languages(profile, session.options.served_bound)
        both = split.calibration.joined(split.validation).select(served)
        texts = [text for passages in both.by_language.values() for text in passages.texts]
        return [texts[i] for i in np.random.default_rng(session.options.seed).permutation(len(texts))]


@dataclass(frozen=True)
class RowTask:
    """A row of a comparison, as a task: the model is quantized and measured by one worker."""

    name: str
    bits: int
    key: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (f"trials/{self.name}/", "trials/planning/", "planning/", "profiles/")

    def run(self, session: Session, advance: Advance) -> Row:
        session.progress.say(f"{self.name} …")
        row = Rows(session, self.bits).compute(find_compared_method(self.name), self.key)
        advance(1)
        return row


def _empty(method: ComparedMethod, bits: int) -> Row:
    return Row(method=method.name, bits=bits, reads_text=method.reads_text)


def _failed(row: Row, error: BaseException) -> Row:
    return row.model_copy(update={"reason": _reason(error), "missing": isinstance(error, MissingExtra)})


def _file(method: str, key: str) -> str:
    return f"rows/{method}-{key[:8]}.json"


def _reason(error: BaseException) -> str:
    """The reason in one line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return first if isinstance(error, LaaciqError) else f"{type(error).__name__}: {first}"


def _settings(plan: Plan, options: WeightOptions) -> str:
    planned = options.budget or plan.method == "planned"
    grid = "bits and groups by tensor" if planned else f"groups of {options.group_size}"
    tuned = f", {plan.tuned} epochs of tuning" if plan.tuned else ""
    return f"{grid}{tuned}{'' if plan.weights else ', no text read'}"


def _version(library: str) -> str:
    """Name and version of the installed package for an import name."""
    names = metadata.packages_distributions().get(library.partition(".")[0], [])
    return ", ".join(f"{name} {metadata.version(name)}" for name in sorted(set(names))) or library
