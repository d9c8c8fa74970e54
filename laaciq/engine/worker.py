"""A worker: opens what tasks work on once, does one task after the other, and reports what happens meanwhile."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from pydantic import BaseModel

from laaciq.engine.failures import explained
from laaciq.engine.progress import Advance, Progress, Stage
from laaciq.engine.store import MemoryStore, Record
from laaciq.engine.workers import Home, Opening, Task
from laaciq.errors import LaaciqError


class TaskFailed(Exception):
    """An error in a worker that nobody expected. The message ends with the worker's traceback."""


@dataclass
class Report:
    """What happened in a worker since its last report: units counted, the present stage of its task, sentences for the user, results to keep,
    and the names and keys of stored results that it used.
    """

    units: float = 0.0
    stage: str = ""
    sentences: list[str] = field(default_factory=list)
    kept: list[tuple[str, BaseModel, str]] = field(default_factory=list)
    used: list[tuple[str, str]] = field(default_factory=list)

    def deliver(self, home: Home) -> None:
        for sentence in self.sentences:
            home.progress.say(sentence)
        for name, result, key in self.kept:
            # Two workers may need, and compute, the same.
            if not home.store.valid(name, key):
                home.store.keep(name, result, key)
        for name, key in self.used:
            home.store.valid(name, key)


@dataclass(frozen=True)
class Outcome:
    """The end of a task: its result or its error, and the last report."""

    result: Any
    error: Exception | None
    report: Report


class Worker:
    """`report` may be called from another thread while `work` is busy."""

    def __init__(self, opening: Opening, threads: int) -> None:
        self._opening, self._threads = opening, threads
        self._news = _News()
        self._store = _ReportingStore(self._news)
        self._home: Any = None

    def work(self, task: Task[Any], known: list[Record]) -> Outcome:
        """Do a task. `known` are stored results that it may use."""
        # A number of threads holds for the calling thread alone.
        torch.set_num_threads(self._threads)
        self._store.learn(known)
        result, failure = None, None
        try:
            if self._home is None:
                self._home = self._opening(_ReportingProgress(self._news), self._store)
            result = task.run(self._home, self._news.advance)
        except (Exception, SystemExit) as error:
            failure = _sent(error)
        return Outcome(result, failure, self.report())

    def report(self) -> Report:
        return self._news.take()


class _News:
    """Collected for the next report."""

    def __init__(self) -> None:
        self._lock, self._report = Lock(), Report()

    @contextmanager
    def writing(self) -> Iterator[Report]:
        with self._lock:
            yield self._report

    def advance(self, units: float) -> None:
        with self.writing() as report:
            report.units += units

    def take(self) -> Report:
        with self._lock:
            taken, self._report = self._report, Report(stage=self._report.stage)
            return taken


class _ReportingProgress(Progress):
    def __init__(self, news: _News) -> None:
        self._news = news

    def say(self, text: str) -> None:
        with self._news.writing() as report:
            report.sentences.append(text)

    @contextmanager
    def stage(self, title: str, total: float, **_: object) -> Iterator[Advance]:
        stage = Stage(title, total)

        def advance(units: float) -> None:
            stage.advance(units)
            self._show(f"{title}: {stage.counts}")

        with self._news.writing() as report:
            outer = report.stage
        self._show(f"{title}: {stage.counts}" if total > 0 else outer)
        try:
            yield advance
        finally:
            self._show(outer)

    def _show(self, words: str) -> None:
        with self._news.writing() as report:
            report.stage = words


class _ReportingStore(MemoryStore):
    """Keeps results in memory, so that later tasks find them, and reports them."""

    def __init__(self, news: _News) -> None:
        super().__init__()
        self._news = news
        self._learned: dict[str, str] = {}

    def learn(self, records: list[Record]) -> None:
        for record in records:
            self.put(record)
            self._learned[record.name] = record.key

    def valid(self, name: str, key: str) -> bool:
        valid = super().valid(name, key)
        if valid and self._learned.get(name) == key:
            with self._news.writing() as report:
                report.used.append((name, key))
        return valid

    def keep(self, name: str, result: BaseModel, key: str) -> None:
        super().keep(name, result, key)
        with self._news.writing() as report:
            report.kept.append((name, result, key))


def _sent(error: BaseException) -> Exception:
    """The error as it is sent: ours as it is, others in words, since they may hold anything."""
    if isinstance(error, LaaciqError):
        return error
    fixable = explained(error) if isinstance(error, Exception) else None
    return fixable or TaskFailed("".join(traceback.format_exception(error)))
