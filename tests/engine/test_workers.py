"""Handing out tasks: what the pool of workers promises, on a cluster within this process. Ray itself is in tests/commands/test_workers.py."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from laaciq.engine.placement import Machine, Place, gpu_share, place_workers, sharing
from laaciq.engine.progress import Progress
from laaciq.engine.run_folder import RunFolder
from laaciq.engine.store import MemoryStore, SubStore
from laaciq.engine.worker import TaskFailed
from laaciq.engine.worker_pool import ATTEMPTS, ProcessDied, WorkerPool
from laaciq.engine.workers import ThisProcess, make_workers
from laaciq.errors import BadOption, BrokenModel, MissingExtra, WorkerDied
from laaciq.strict import StrictModel

GIGABYTE = 2.0**30


class Number(StrictModel):
    value: int


class Sentences(Progress):
    def __init__(self):
        self.said, self.shown = [], []

    def say(self, text):
        self.said.append(text)

    @contextmanager
    def stage(self, title, total, **_):
        yield self.shown.append


@dataclass
class Home:
    store: MemoryStore = field(default_factory=MemoryStore)
    progress: Progress = field(default_factory=Sentences)


def opening(progress, store):
    return Home(store, progress)


@dataclass(frozen=True)
class Squared:
    """A task: the square of a number, which it also keeps. It raises `error`, if it has one."""

    name: str
    number: int = 0
    error: BaseException | None = None
    reads: tuple[str, ...] = ("numbers/",)

    def run(self, home, advance):
        home.progress.say(f"{self.name} …")
        with home.progress.stage("squaring", 4) as step:
            advance(1)
            step(1)
        if self.error is not None:
            raise self.error
        known = home.store.result(f"numbers/{self.name}", Number, "key", lambda: Number(value=self.number**2))
        return known.value


class Here:
    """A cluster whose processes are objects of this one. The first calls of `work` end in `deaths`; calls run when their results are needed."""

    def __init__(self, places=2, deaths=0):
        self.places, self.deaths, self.left = [Place("here", 1)] * places, deaths, None
        self.made, self.order = [], []

    def join(self):
        return self.places

    def leave(self, objects):
        self.left = objects

    def put(self, value):
        return value

    def make(self, kind, place, *arguments):
        self.made.append(kind(*arguments))
        return self.made[-1]

    def call(self, target, method, *arguments):
        if method == "work":
            self.order.append(arguments[0].name)
        return (target, method, *arguments)[:3] if method == "report" else _Call(target, arguments)

    def ended(self, references, seconds):
        return list(references)[:1]

    def result(self, reference):
        if not isinstance(reference, _Call):
            return reference[0].report()
        outcome = reference.target.work(*reference.arguments)
        if self.deaths:
            self.deaths -= 1
            raise ProcessDied("out of memory")
        return outcome


@dataclass(eq=False)
class _Call:
    target: object
    arguments: tuple


def pool(cluster, count=2):
    made = WorkerPool(lambda gpu, memory: cluster, count, here=True)
    assert made.reserve(opening, gpu=False, memory=0.0) == count
    return made


def test_results_are_kept_here_and_known_ones_are_used_there():
    home, cluster, done, units = Home(), Here(), [], []
    home.store.keep("numbers/known", Number(value=5), "key")
    workers = pool(cluster)
    tasks = [Squared("three", 3), Squared("four", 4), Squared("known", 7)]
    handed = [workers.submit(task, home, advance=units.append, done=done.append) for task in tasks]
    assert workers.working == "worker 1: three; worker 2: four"
    assert [pending.result() for pending in handed] == [9, 16, 5]
    assert sorted(done) == [5, 9, 16]
    assert sum(units) == 3
    assert home.store.read("numbers/four", Number).value == 16
    assert sorted(home.progress.said) == ["four …", "known …", "three …"]
    workers.close()
    assert cluster.left == cluster.made


def test_a_task_that_must_not_wait_comes_first():
    cluster, home = Here(places=1), Home()
    workers = pool(cluster, 1)
    none = {"advance": lambda units: None, "done": lambda result: None}
    handed = deque(workers.submit(Squared(name), home, **none) for name in ("a", "b"))
    handed.append(workers.submit(Squared("soon"), home, first=True, **none))
    while handed:
        handed.pop().result()
    assert cluster.order == ["a", "soon", "b"]


@pytest.mark.parametrize("deaths", [1, ATTEMPTS - 1, ATTEMPTS])
def test_a_worker_that_dies_is_replaced_and_its_task_done_again(deaths):
    cluster, home, done, units = Here(places=1, deaths=deaths), Home(), [], []
    workers = pool(cluster, 1)
    doomed = workers.submit(Squared("three", 3), home, advance=units.append, done=done.append)
    after = workers.submit(Squared("four", 4), home, advance=units.append, done=done.append)
    if deaths == ATTEMPTS:
        with pytest.raises(WorkerDied, match=r"3 workers died one after the other at 'three' \(out of memory\)"):
            doomed.result()
    else:
        assert doomed.result() == 9
    # It is that task's error alone.
    assert after.result() == 16
    assert len(cluster.made) == 1 + deaths
    again = "Worker 1 died (out of memory). Another one does its task again: three."
    assert home.progress.said.count(again) == min(deaths, ATTEMPTS - 1)
    # What the dead had counted does not count twice.
    assert sum(units) == len(done)


def test_errors_come_back_as_they_would_be_raised_here():
    workers, home = pool(Here()), Home()
    none = {"advance": lambda units: None, "done": lambda result: None}
    with pytest.raises(BrokenModel, match=r"^no weights$"):
        workers.submit(Squared("broken", error=BrokenModel("no weights")), home, **none).result()
    with pytest.raises(TaskFailed, match="ZeroDivisionError: by zero"):
        workers.submit(Squared("wrong", error=ZeroDivisionError("by zero")), home, **none).result()
    with pytest.raises(TaskFailed, match="SystemExit: gone"):
        workers.submit(Squared("leaving", error=SystemExit("gone")), home, **none).result()
    assert workers.submit(Squared("three", 3), home, **none).result() == 9


def test_without_workers_a_task_is_done_when_its_result_is_needed():
    home, done = Home(), []
    pending = ThisProcess().submit(Squared("three", 3), home, advance=lambda units: None, done=done.append)
    assert home.progress.said == done == []
    assert (pending.result(), pending.result(), done) == (9, 9, [9])


def test_stored_results_travel_as_they_are(tmp_path):
    folder = RunFolder(tmp_path / "run", description={"command": "laaciq"})
    within = SubStore(folder, "draws/1")
    for store in (folder, within, MemoryStore()):
        store.keep("numbers/a.json", Number(value=1), "key")
        store.keep("others/b.json", Number(value=2), "key")
        (record,) = store.records(["numbers/"])
        other = MemoryStore()
        other.put(record)
        assert (record.name, other.valid("numbers/a.json", "key")) == ("numbers/a.json", True)
        assert other.read("numbers/a.json", Number).value == 1
    # A file that was edited is no result.
    (tmp_path / "run/numbers/a.json").write_text('{"value": 3}')
    assert folder.records(["numbers/"]) == []
    folder.close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"workers": 0}, "--workers 0 is out of range: give 1 or more"),
        ({"ray": " "}, "--ray is empty: give the address of a Ray cluster"),
        ({"ray": "ray://head:10001"}, "is the address of a client: run this command on a machine of the cluster"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, sentence):
    with pytest.raises(BadOption, match=sentence):
        make_workers(**options)


@pytest.mark.parametrize(("options", "name"), [({"workers": 2}, "--workers"), ({"ray": "auto"}, "--ray")])
def test_without_the_extra_a_sentence_says_what_to_install(monkeypatch, options, name):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra) as error:
        make_workers(**options)
    assert str(error.value) == f"{name} needs Ray: run pip install '.[ray]' in your clone of laaciq"
    assert make_workers() == ThisProcess()


LARGE, SMALL = Machine("large", 16, 4, 64 * GIGABYTE), Machine("small", 4, 1, 16 * GIGABYTE)


@pytest.mark.parametrize(
    ("count", "needs", "expected"),
    [
        # Every GPU; every machine, if none is needed.
        (None, {"gpu": True, "memory": 0}, [("large", 4)] * 4 + [("small", 4)]),
        (None, {"gpu": False, "memory": 0}, [("large", 16), ("small", 4)]),
        (3, {"gpu": False, "memory": GIGABYTE}, [("large", 8)] * 2 + [("small", 4)]),
        # Only where it fits.
        (2, {"gpu": False, "memory": 30 * GIGABYTE}, [("large", 8)] * 2),
    ],
)
def test_workers_are_spread_over_the_machines(count, needs, expected):
    assert [(place.node, place.threads) for place in place_workers([LARGE, SMALL], count, **needs)] == expected


@pytest.mark.parametrize(
    ("count", "memory", "sentence"),
    [
        (6, GIGABYTE, "room for 5 workers with a GPU and 1.0 GB of memory each, not for 6: give fewer --workers, or"),
        (None, 99 * GIGABYTE, "room for 0 workers with a GPU and 99.0 GB of memory each: add machines"),
    ],
)
def test_a_cluster_that_is_too_small_is_refused(count, memory, sentence):
    with pytest.raises(BadOption, match=sentence):
        place_workers([LARGE, SMALL], count, gpu=True, memory=memory)


@pytest.mark.parametrize(("workers", "gpus", "most"), [(1, 1, 1), (4, 4, 1), (5, 4, 2), (7, 1, 7), (2, 0, 2)])
def test_workers_of_this_machine_share_gpus(workers, gpus, most):
    share = gpu_share(most)
    assert sharing(workers, gpus) == most
    # Ray counts in units of 10⁻⁴: all have room, and one more has none.
    assert round(1e4 * share) / 1e4 == share
    assert most * share <= 1 < (most + 1) * share
