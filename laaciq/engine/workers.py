"""Who does the tasks of a command: this process, one after the other, or workers, several at once.

Everything else sees `Workers` alone. `laaciq.engine.ray_cluster` is the one module that knows of Ray.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar

from laaciq.engine.progress import Advance, Progress
from laaciq.engine.store import Store
from laaciq.errors import BadOption, MissingExtra, install_hint

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
# Opens what tasks of a worker work on, such as a session; it is sent to every worker, which calls it once.
Opening = Callable[[Progress, Store], Any]


class Home(Protocol):
    """What tasks work on in this process. A worker opens its like; what the worker keeps and says ends up here."""

    @property
    def store(self) -> Store: ...

    @property
    def progress(self) -> Progress: ...


class Task(Protocol[Result_co]):
    """Work that another process can do: it holds data, and neither models nor functions. `name` is shown while it is done. `reads` begins the
    names of stored results that it may use.
    """

    @property
    def name(self) -> str: ...

    @property
    def reads(self) -> tuple[str, ...]: ...

    def run(self, home: Any, advance: Advance) -> Result_co:
        """`advance` counts units of any kind."""
        ...


class Pending(Protocol[Result_co]):
    """A task that was handed out."""

    @property
    def ended(self) -> bool:
        """True if its result, or its error, is there."""
        ...

    def result(self) -> Result_co:
        """Its result, waited for; or its error."""
        ...


class Workers(Protocol):
    @property
    def apart(self) -> bool:
        """True if tasks are done in other processes, and so beside what this one does."""
        ...

    @property
    def here(self) -> bool:
        """True if they all run on this machine."""
        ...

    @property
    def working(self) -> str:
        """What every worker does now, in words."""
        ...

    def reserve(self, opening: Opening, *, gpu: bool, memory: float) -> int:
        """Prepare to start workers that need a GPU or none, and `memory` bytes each. Returns their number. To be called before `submit`."""
        ...

    def submit(
        self, task: Task[Result], home: Home, *, advance: Advance, done: Callable[[Result], object], first: bool = False
    ) -> Pending[Result]:
        """Hand out a task, `first` before all that wait. `done` receives its result in this process, as soon as it is noticed."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


@dataclass
class _Deferred(Generic[Result]):
    """A task of this process, done when its result is needed."""

    task: Task[Result]
    home: Home
    advance: Advance
    done: Callable[[Result], object]

    @cached_property
    def _result(self) -> Result:
        result = self.task.run(self.home, self.advance)
        self.done(result)
        return result

    @property
    def ended(self) -> bool:
        return "_result" in self.__dict__

    def result(self) -> Result:
        return self._result


@dataclass(frozen=True)
class ThisProcess:
    """No workers: the default."""

    apart: bool = field(default=False, init=False)
    here: bool = field(default=True, init=False)
    working: str = field(default="", init=False)

    def reserve(self, opening: Opening, *, gpu: bool, memory: float) -> int:
        return 0

    def submit(
        self, task: Task[Result], home: Home, *, advance: Advance, done: Callable[[Result], object], first: bool = False
    ) -> Pending[Result]:
        return _Deferred(task, home, advance, done)

    def close(self) -> None:
        pass


def make_workers(workers: int | None = None, ray: str | None = None) -> Workers:
    """From the options `--workers` and `--ray`. Nothing is started yet."""
    if workers is None and ray is None:
        return ThisProcess()
    if workers is not None and workers < 1:
        raise BadOption(f"--workers {workers} is out of range: give 1 or more, or leave it out to work in one process")
    if ray is not None and not ray.strip():
        raise BadOption("--ray is empty: give the address of a Ray cluster, such as 10.0.0.5:6379, or auto")
    if ray is not None and "://" in ray:
        raise BadOption(
            f"--ray {ray} is the address of a client: run this command on a machine of the cluster, with --ray auto or --ray HOST:PORT"
        )
    if find_spec("ray") is None:
        raise MissingExtra(f"{'--workers' if ray is None else '--ray'} needs Ray: {install_hint('ray')}")
    from laaciq.engine.ray_cluster import RayCluster
    from laaciq.engine.worker_pool import WorkerPool

    def connect(gpu: bool, memory: float) -> RayCluster:
        return RayCluster(ray, workers, gpu=gpu, memory=memory)

    return WorkerPool(connect, workers, here=ray is None)
