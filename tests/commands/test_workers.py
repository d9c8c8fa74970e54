"""Commands with workers of Ray give what they give without, whatever happens to the workers. One cluster serves all tests but the last."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import ray

import laaciq
from benchmarks.draws import make_draws, open_session
from benchmarks.methods import MethodsDraw
from laaciq.engine.progress import Progress
from laaciq.engine.ray_cluster import RayCluster
from laaciq.errors import LaaciqError
from laaciq.options import BUILTIN
from tests.short_texts import write_short_texts
from tests.tiny import save_tiny

FEW = ("eng", "swa")
MEASURING = {"served_bound": 100.0}
# The last one cannot be made with these bits.
COMPARED = {"methods": ["gptq", "rtn", "nf4"], "bits": 3, **MEASURING}
RUN = {"budget": 4.25, **MEASURING}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    # Attention in heads of 8 depends on the number of threads in its last digits (MKL); no model in use has such heads.
    save_tiny("llama", place / "model", hidden_size=64)
    write_short_texts(place / "texts", FEW, passages=30)
    return place


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[dict[str, Any]]:
    """Options for two workers on a cluster that runs already."""
    before = Path.cwd()
    os.chdir(place)
    started = RayCluster(None, 2, gpu=False, memory=0.0)
    started.join()
    os.chdir(before)
    yield {"ray": "auto", "workers": 2}
    started.leave([])


class Sentences(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def workers_of(pid: int) -> list[int]:
    """Workers below a process. Their first tasks wait for them, and take seconds: libraries and the model are loaded."""
    return [below for below in descendants(pid) if title(below).startswith("ray::Worker")]


def descendants(pid: int) -> list[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    found = [pid]
    for above in found:
        found += [below for below, parent in parents.items() if parent == above]
    return found[1:]


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@contextmanager
def killing(most: int) -> Iterator[list[int]]:
    """Context manager: so many workers are killed. Yields those that were."""
    killed: list[int] = []
    over, before = Event(), workers_of(os.getpid())

    def kill() -> None:
        while len(killed) < most and not over.wait(0.01):
            for pid in [pid for pid in workers_of(os.getpid()) if pid not in [*before, *killed]][:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    thread = Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def call(place: Path, verb: Callable[..., Any], out: str, **options: Any) -> Path:
    verb(place / "model", texts=place / "texts", out=place / out, **options)
    return place / out


def results(folder: Path) -> dict[str, Any]:
    """All that was written, less the seconds that libraries took, which a report shows and keys of files depend on."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith((".laaciq", "keys/", "report")):
            found[name] = untimed(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()
    return found


def untimed(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: untimed(value) for name, value in content.items() if name != "seconds"}
    return [untimed(value) for value in content] if isinstance(content, list) else content


@pytest.fixture(scope="module")
def compared(place: Path) -> dict[str, Any]:
    """Without workers."""
    return results(call(place, laaciq.compare, "compared", **COMPARED))


def test_run(place: Path, cluster: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    alone, progress = call(place, laaciq.run, "alone", **RUN), Sentences()
    with killing(1) as killed:
        out = call(place, laaciq.run, "killed-run", progress=progress, **cluster, **RUN)
    assert len(killed) == 1
    assert sum("died. Another one does its task again: " in said for said in progress.said) == 1
    assert results(out) == results(alone)
    # Not even that a worker died: standard output is for results.
    assert capsys.readouterr().out == ""


def test_compare(place: Path, cluster: dict[str, Any], compared: dict[str, Any]) -> None:
    assert [row["reason"] for row in compared["compare.json"]["rows"]] == [None, None, "nf4 supports 4 bits, not 3"]
    with killing(1) as killed:
        assert results(call(place, laaciq.compare, "killed", **cluster, **COMPARED)) == compared
    assert len(killed) == 1
    # A row of which every worker dies is a row that says so; the next command tries it again.
    only = COMPARED | {"methods": ["rtn"]}
    with killing(3):
        died = call(place, laaciq.compare, "died", **cluster | {"workers": 1}, **only)
    (row,) = results(died)["compare.json"]["rows"]
    assert row["reason"].startswith("3 workers died one after the other at 'rtn'")
    (row,) = results(call(place, laaciq.compare, "died", **only))["compare.json"]["rows"]
    assert row["reason"] is None


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        (laaciq.sweep, {"bits": [3, 8]}),
        (laaciq.gateway, {"protect": 1}),
        (laaciq.mixture, {"calibration_passages": (1,), "rounds": 1, "passages": 4}),
    ],
)
def test_studies(place: Path, cluster: dict[str, Any], verb: Callable[..., Any], options: dict[str, Any]) -> None:
    """With one worker, which has another number of threads than this process."""
    name = verb.__name__
    alone = call(place, verb, name, **MEASURING, **options)
    shared = call(place, verb, f"{name}-shared", **cluster | {"workers": 1}, **MEASURING, **options)
    assert results(shared) == results(alone)


def draws(place: Path, out: str, **sharing: Any) -> dict[str, Any]:
    """Rows of two draws of a benchmark, and of what reads no text."""
    given = {"bits": "4", "rows": "effective", "languages": "", "passages": 2, "device": "cpu", "overwrite": False}
    arguments = Namespace(out=place / out, **given, **{"workers": None, "ray": None, **sharing})
    split = laaciq.read_split(place / "texts")
    with open_session(str(place / "model"), arguments, split) as session:
        tests = {BUILTIN: split.test.spread(2)}
        make_draws(session, [MethodsDraw(number, arguments, split.calibration, tests) for number in (None, 0, 1)])
    return {name: row for name, row in results(place / out).items() if "/rows/" in name}


def test_draws_of_benchmarks(place: Path, cluster: dict[str, Any]) -> None:
    with killing(1) as killed:
        shared = draws(place, "drawn-with", **cluster)
    assert len(killed) == 1
    alone = draws(place, "drawn")
    assert shared == alone
    assert {name.partition("/")[0] for name in alone} == {"text-free", "draw-0", "draw-1"}
    # Rows of the same name were rounded on other text.
    rows = [alone[f"draw-{number}/rows/4 bits, effective weights.json"] for number in (0, 1)]
    assert rows[0]["weight_error"] != rows[1]["weight_error"]


def test_workers_import_nothing_from_the_current_folder(place: Path, cluster: dict[str, Any]) -> None:
    """The cluster was started in the folder of the texts."""

    @ray.remote
    def paths() -> tuple[str, list[str]]:
        return os.getcwd(), sys.path

    current, imported = ray.get(paths.remote())
    assert str(place) not in (current, *imported)
    assert "" not in imported


def test_clusters_that_cannot_be_used_are_refused(place: Path, cluster: dict[str, Any]) -> None:
    def refused(**workers: Any) -> str:
        with pytest.raises(LaaciqError) as error:
            call(place, laaciq.sweep, "refused", **workers, **MEASURING)
        assert not (place / "refused").exists()
        return str(error.value)

    assert "room for 2 workers with a core" in refused(ray="auto", workers=3)
    assert "this process is connected to the Ray cluster at " in refused(workers=2)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("127.0.0.1:1", "no Ray cluster can be joined at '127.0.0.1:1'"), ("somewhere", "'somewhere' is not an address")],
)
def test_an_address_where_no_cluster_is(monkeypatch: pytest.MonkeyPatch, address: str, sentence: str) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(LaaciqError, match=sentence):
        RayCluster(address, None, gpu=False, memory=0.0).join()


def test_an_interrupted_command_ends_its_workers_and_says_how_to_resume(place: Path, compared: dict[str, Any]) -> None:
    words = ["compare", place / "model", "--texts", place / "texts", "--methods", "gptq,rtn,nf4", "--bits", "3"]
    words = [sys.executable, "-m", "laaciq", *map(str, words), "--served-bound", "100", "--out", "interrupted"]
    words += ["--json", "--workers", "2"]
    options = {"cwd": place, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **options) as process:
        while process.poll() is None and not workers_of(process.pid):
            time.sleep(0.05)
        below = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        printed, complaints = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")
    assert complaints.endswith(f"Interrupted. Continue with: {' '.join(words)}\n")
    assert [title(pid) for pid in below if title(pid)] == []
    assert results(call(place, laaciq.compare, "interrupted", **COMPARED)) == compared
