"""Ray, on this machine or on a cluster of machines. No other module imports it, and it is imported when the first worker is needed.

Nothing that Ray prints reaches the terminal, and it changes nothing of this process for longer than it is needed.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, TextIO, cast

import torch

from laaciq.engine.placement import Machine, Place, gpu_share, place_workers, sharing
from laaciq.engine.worker import TaskFailed
from laaciq.engine.worker_pool import ProcessDied
from laaciq.errors import BadOption, LaaciqError

_PACKAGES = Path(__file__).parents[2]
# A socket's path has at most 107 characters, and Ray's names take up to 75 of them.
_LONGEST_FOLDER = 30
# Seconds to reach a cluster: Ray itself would try for minutes.
_REACHED_WITHIN = 10.0
_QUIET = {"logging_level": logging.ERROR, "log_to_driver": False}


class RayCluster:
    """Objects in other processes, each on the machine that `place_workers` chose for it. Without an `address`, Ray is started on this machine
    for `count` processes, and ended with `leave`.
    """

    def __init__(self, address: str | None, count: int | None, *, gpu: bool, memory: float) -> None:
        self.address, self.count, self.gpu, self.memory = address, count, gpu, memory
        self._left = ExitStack()
        # Here we know whether memory suffices for several processes on a GPU. On a cluster, each has one of its own.
        self._per_gpu = sharing(count or 1, torch.cuda.device_count()) if address is None and gpu else 1

    @property
    def _ray(self) -> Any:
        import ray

        return ray

    def join(self) -> list[Place]:
        """Start Ray or join its cluster, and find places for the processes."""
        with ExitStack() as failed:
            failed.callback(self.leave, [])
            if self._ray.is_initialized():
                self._require_wanted()
            elif self.address is None:
                self._start()
            else:
                self._connect(self.address)
            self._left.enter_context(_without_messages_of_ray())
            places = place_workers(self._machines(), self.count, gpu=self.gpu, memory=self._reserved)
            failed.pop_all()
        return places

    def leave(self, objects: Sequence[Any]) -> None:
        """End these objects; and Ray, if it was started here."""
        try:
            for each in objects:
                self._ray.kill(each)
        finally:
            self._left.close()

    def put(self, value: object) -> Any:
        """A reference that can stand for the value in calls. The value is sent to every machine once."""
        return self._ray.put(value)

    def make(self, kind: type, place: Place, *arguments: object) -> Any:
        """An object of this kind in a process there. Two of its methods may run at a time."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return (
            self._ray.remote(kind)
            .options(
                num_cpus=place.threads,
                num_gpus=gpu_share(self._per_gpu) if self.gpu else 0,
                memory=int(self._reserved) or None,
                max_concurrency=2,
                # Another machine is as good, should this one be gone.
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=True),
            )
            .remote(*arguments)
        )

    def call(self, target: Any, method: str, *arguments: object) -> Any:
        """Call a method of an object, and return a reference to its result at once."""
        return getattr(target, method).remote(*arguments)

    def ended(self, references: Sequence[Any], seconds: float) -> list[Any]:
        """Those whose results are there, waiting for the first for so long."""
        with _interruptible():
            return self._ray.wait(list(references), timeout=seconds)[0]

    def result(self, reference: Any) -> Any:
        """The result of a call; `ProcessDied` if its process did."""
        errors = self._ray.exceptions
        try:
            with _interruptible():
                return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise TaskFailed(str(error)) from None
        except errors.RayError as error:
            raise ProcessDied("out of memory" if isinstance(error, errors.OutOfMemoryError) else "") from None

    @property
    def _reserved(self) -> float:
        """Memory that Ray sets aside for a process. On this machine it was compared with what is free already."""
        return 0.0 if self.address is None else self.memory

    def _machines(self) -> list[Machine]:
        alive = [(node["NodeID"], node["Resources"]) for node in self._ray.nodes() if node["Alive"]]
        return [
            Machine(node, int(has.get("CPU", 0)), self._per_gpu * int(has.get("GPU", 0)), has.get("memory", 0.0))
            for node, has in alive
        ]

    def _require_wanted(self) -> None:
        """Within a program that uses Ray itself, its connection is used, and left as it is."""
        if self.address not in ("auto", there := self._ray.get_runtime_context().gcs_address):
            raise BadOption(
                f"this process is connected to the Ray cluster at {there} already: give ray='auto' to use it"
            )

    def _start(self) -> None:
        count = self.count or 1
        folder = self._left.enter_context(_short_folder())
        # Ray listens to the network: only who knows this word is listened to.
        self._left.enter_context(_variables({"RAY_AUTH_TOKEN": _token(), "RAY_AUTH_MODE": None}))
        paths = [str(_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
        with _variables({"PYTHONPATH": os.pathsep.join(paths)}):
            self._init(
                folder,
                address="local",
                num_cpus=count * max(1, torch.get_num_threads() // count),
                num_gpus=min(count, torch.cuda.device_count()) if self.gpu else 0,
                include_dashboard=False,
                _temp_dir=folder,
            )

    def _connect(self, address: str) -> None:
        if address != "auto":
            _require_reachable(address)
        try:
            self._init(str(_PACKAGES), address=address)
        except (OSError, ValueError, RuntimeError) as error:
            raise _unreachable(address, (str(error).strip().splitlines() or [""])[0]) from None

    def _init(self, folder: str, **options: Any) -> None:
        """Ray lets workers import modules from the current folder, which may hold a stranger's files: so it gets another one."""
        self._left.enter_context(_variables({"RAY_USAGE_STATS_ENABLED": "0"}))
        logging.getLogger("ray").setLevel(logging.ERROR)
        self._left.callback(self._ray.shutdown)
        with _as_before(), _in_folder(folder), _interruptible():
            self._ray.init(**_QUIET, **options)


@cache
def _token() -> str:
    """One for all clusters of this process, in which Ray remembers the first."""
    return secrets.token_hex(32)


def _require_reachable(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BadOption(f"--ray {address!r} is not an address: give HOST:PORT, such as 10.0.0.5:6379, or auto")
    try:
        socket.create_connection((host, int(port)), timeout=_REACHED_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from None


def _unreachable(address: str, reason: str) -> LaaciqError:
    return LaaciqError(
        f"no Ray cluster can be joined at {address!r} ({reason}): start one with 'ray start', and run this command on one of its machines"
    )


@contextmanager
def _short_folder() -> Iterator[str]:
    """For Ray's sockets and logs; removed in the end."""
    usual = tempfile.gettempdir()
    place = usual if len(usual) <= _LONGEST_FOLDER or not Path("/tmp").is_dir() else "/tmp"  # noqa: S108 (a new folder in it)
    with tempfile.TemporaryDirectory(prefix="laaciq-ray-", dir=place, ignore_cleanup_errors=True) as folder:
        yield folder


@contextmanager
def _variables(values: dict[str, str | None]) -> Iterator[None]:
    """Context manager: environment variables have these values; None is unset."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Context manager: what a signal raises while Ray waits is raised. Ray makes an error of its own of all but Ctrl-C."""
    try:
        yield
    except SystemError as error:
        if error.__cause__ is None or isinstance(error.__cause__, Exception):
            raise
        raise error.__cause__ from None


@contextmanager
def _as_before() -> Iterator[None]:
    """Context manager: afterwards, signals and unexpected errors are handled as before, not by Ray."""
    hook, handler = sys.excepthook, signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        sys.excepthook = hook
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


@contextmanager
def _without_messages_of_ray() -> Iterator[None]:
    """Context manager: a thread of Ray's prints to standard output when a worker dies. We say it ourselves, and standard output is for
    results.
    """
    with redirect_stdout(cast("TextIO", _Guarded(sys.stdout))):
        yield


class _Guarded:
    """A stream in which Ray's threads write nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return len(text) if threading.current_thread().name.startswith("ray_") else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
