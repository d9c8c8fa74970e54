"""A pool of workers in other processes: hands out tasks, takes in results and reports, and replaces workers that die.

What starts those processes is a `Cluster`; see `laaciq.engine.ray_cluster`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from laaciq.engine.placement import Place
from laaciq.engine.progress import Advance
from laaciq.engine.worker import Outcome, Report, TaskFailed, Worker
from laaciq.engine.workers import Home, Opening, Pending, Task
from laaciq.errors import WorkerDied

Result = TypeVar("Result")
# A task whose worker dies is tried so many times in all.
ATTEMPTS = 3
# Seconds between two looks at what workers report.
_REPORTED_EVERY = 0.5
# Seconds after which a message says that no worker has started: loading the libraries takes some.
_PATIENCE = 60.0
# Most workers whose tasks are named in a line of progress.
_NAMED = 8


class ProcessDied(Exception):
    """The process of an object ended by itself or was killed. The message is the reason, if it is known."""


class Cluster(Protocol):
    """Objects in other processes. `laaciq.engine.ray_cluster.RayCluster` says what the methods do."""

    def join(self) -> list[Place]: ...

    def leave(self, objects: Sequence[Any]) -> None: ...

    def put(self, value: object) -> Any: ...

    def make(self, kind: type, place: Place, *arguments: object) -> Any: ...

    def call(self, target: Any, method: str, *arguments: object) -> Any: ...

    def ended(self, references: Sequence[Any], seconds: float) -> list[Any]: ...

    def result(self, reference: Any) -> Any: ...


@dataclass(eq=False)
class _Handed(Generic[Result]):
    """A task that was handed out. `counted` are the units that its present attempt has reported."""

    pool: WorkerPool
    task: Task[Result]
    home: Home
    advance: Advance
    done: Callable[[Result], object]
    attempts: int = 0
    counted: float = 0.0
    ended: bool = False
    outcome: Result | None = None
    error: Exception | None = None

    def result(self) -> Result:
        while not self.ended:
            self.pool.attend()
        if self.error is not None:
            raise self.error
        return self.outcome  # type: ignore[return-value]

    def count(self, units: float) -> None:
        self.counted += units
        self.advance(units)

    def take(self, report: Report) -> None:
        self.count(report.units)
        report.deliver(self.home)

    def end(self, outcome: Outcome) -> None:
        self.ended, self.outcome, self.error = True, outcome.result, outcome.error
        if self.error is None:
            self.done(outcome.result)

    def fail(self, error: Exception) -> None:
        self.ended, self.error = True, error


@dataclass
class _Slot:
    """A worker, and its successors should it die. `working` refers to the end of its task, `reporting` to a report that was
    requested.
    """

    number: int
    place: Place
    worker: Any
    handed: _Handed[Any] | None = None
    working: Any = None
    reporting: Any = None
    stage: str = ""

    @property
    def words(self) -> str:
        name = "" if self.handed is None else self.handed.task.name
        return f"worker {self.number}: {name}{self.stage and f', {self.stage}'}"


@dataclass
class WorkerPool:
    """`count` workers, or as many as the cluster has room for. `connect(gpu, memory)` gives the cluster; `here` if that is this machine."""

    connect: Callable[[bool, float], Cluster]
    count: int | None
    here: bool
    _slots: list[_Slot] = field(default_factory=list, init=False)
    _queue: deque[_Handed[Any]] = field(default_factory=deque, init=False)
    _cluster: Cluster | None = field(default=None, init=False)
    _opening: Any = field(default=None, init=False)
    _reported: float = field(default=0.0, init=False)
    # When workers were started, until the first of them answers.
    _awaited_since: float | None = field(default=None, init=False)

    @property
    def apart(self) -> bool:
        return True

    @property
    def working(self) -> str:
        busy = [slot.words for slot in self._slots if slot.handed is not None]
        more = f"; {len(busy) - _NAMED} more" if len(busy) > _NAMED else ""
        return "; ".join(busy[:_NAMED]) + more

    def reserve(self, opening: Opening, *, gpu: bool, memory: float) -> int:
        self._opening, self._cluster = opening, self.connect(gpu, memory)
        # Whether a cluster can be joined is to be known before any work. On this machine, workers start if there is work.
        if not self.here:
            self._start(self._cluster)
        return self.count or len(self._slots)

    def submit(
        self, task: Task[Result], home: Home, *, advance: Advance, done: Callable[[Result], object], first: bool = False
    ) -> Pending[Result]:
        if not self._slots:
            self._start(self._joined)
        handed = _Handed(self, task, home, advance, done)
        if first:
            self._queue.appendleft(handed)
        else:
            self._queue.append(handed)
        self._dispatch()
        return handed

    def attend(self) -> None:
        """Wait a moment for a task to end. Take in results and reports, and hand out what waits."""
        self._dispatch()
        working = {slot.working: slot for slot in self._slots if slot.handed is not None}
        for reference in self._joined.ended(list(working), _REPORTED_EVERY):
            self._end(working[reference])
        if time.monotonic() - self._reported >= _REPORTED_EVERY:
            self._reported = time.monotonic()
            for slot in self._slots:
                self._take_report(slot)
            self._mention_delay()

    def close(self) -> None:
        cluster, workers = self._cluster, [slot.worker for slot in self._slots]
        self._slots, self._cluster = [], None
        self._queue.clear()
        if cluster is not None:
            cluster.leave(workers)

    @property
    def _joined(self) -> Cluster:
        if self._cluster is None:
            raise RuntimeError("places for workers must be reserved before tasks are handed out")
        return self._cluster

    def _start(self, cluster: Cluster) -> None:
        places = cluster.join()
        # Once for all workers: it may hold long texts.
        self._opening = cluster.put(self._opening)
        self._slots = [_Slot(number, place, self._make(place)) for number, place in enumerate(places, 1)]
        self._awaited_since = time.monotonic()

    def _make(self, place: Place) -> Any:
        return self._joined.make(Worker, place, self._opening, place.threads)

    def _dispatch(self) -> None:
        for slot in self._slots:
            if slot.handed is None and self._queue:
                slot.handed, slot.stage = self._queue.popleft(), ""
                task, store = slot.handed.task, slot.handed.home.store
                known = store.records(task.reads) if task.reads else []
                slot.working = self._joined.call(slot.worker, "work", task, known)

    def _end(self, slot: _Slot) -> None:
        """Of the task in a slot: by its outcome, or because its worker died."""
        handed = slot.handed
        if handed is None:
            return
        try:
            outcome = self._joined.result(slot.working)
        except ProcessDied as death:
            self._replace(slot, handed, str(death))
        except TaskFailed as error:  # it could not be sent
            slot.handed = None
            handed.fail(error)
        else:
            self._take_report(slot, last=True)
            slot.handed = None
            handed.take(outcome.report)
            handed.end(outcome)

    def _replace(self, slot: _Slot, handed: _Handed[Any], reason: str) -> None:
        """Of a worker that died. Its task comes first in the queue, unless too many workers have died of it."""
        because = f" ({reason})" if reason else ""
        handed.count(-handed.counted)
        handed.attempts += 1
        slot.handed, slot.reporting, slot.worker = None, None, self._make(slot.place)
        if handed.attempts < ATTEMPTS:
            again = f"Worker {slot.number} died{because}. Another one does its task again: {handed.task.name}."
            handed.home.progress.say(again)
            self._queue.appendleft(handed)
            return
        handed.fail(
            WorkerDied(
                f"{ATTEMPTS} workers died one after the other at {handed.task.name!r}{because}: the usual reason is too little memory; "
                "give fewer --workers, or use machines with more memory"
            )
        )

    def _take_report(self, slot: _Slot, *, last: bool = False) -> None:
        """The report that was requested, if it is there or is the last one of its task; then request the next."""
        if slot.handed is None:
            return
        cluster = self._joined
        if slot.reporting is not None and (last or cluster.ended([slot.reporting], 0)):
            try:
                report = cluster.result(slot.reporting)
            except ProcessDied:  # its task says so too
                return
            slot.reporting, slot.stage, self._awaited_since = None, report.stage, None
            slot.handed.take(report)
        if slot.reporting is None and not last:
            slot.reporting = cluster.call(slot.worker, "report")

    def _mention_delay(self) -> None:
        busy = [slot.handed for slot in self._slots if slot.handed is not None]
        if busy and self._awaited_since is not None and time.monotonic() - self._awaited_since > _PATIENCE:
            self._awaited_since = None
            busy[0].home.progress.say("No worker has started yet: the machines may be busy with other work.")
