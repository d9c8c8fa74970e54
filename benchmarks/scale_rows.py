"""Rows of the scale benchmark: one quantization of one model in a process of its own, with its time by stage and its memory."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Literal

import torch

from benchmarks.scale_child import GROWN, LOOK_SECONDS, Memory, counts_pinned
from laaciq.engine.processes import start_module
from laaciq.strict import StrictModel

FAST, GPTQ, PEER, STREAMED = "fast", "gptq", "llmcompressor", "streamed"
KINDS = {
    FAST: "`--effort fast`",
    GPTQ: "`--method gptq`",
    PEER: "llmcompressor GPTQ",
    STREAMED: "`--effort fast`, streamed from disk",
}
BEFORE, AFTER = "before the first stage", "after the last"
# The folder of the rows, beside those of models and logs.
MEASURED_ROWS = "measured"
_BEGINS = re.compile(r"(?P<title>.+?): (?:\d+%|\d+ of \d+)(?:, .*)?")
_ENDS = re.compile(r"(?P<title>.+?): done in .*")
_counts_pinned = cache(counts_pinned)
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


class Announced(StrictModel):
    """What laaciq said beforehand. `device_bytes` is 0 without a GPU."""

    seconds: float
    host_bytes: float
    device_bytes: float

    @classmethod
    def of(cls, sentence: str) -> Announced | None:
        """From `This takes about 6 min, 9.1 GB and 20.0 GB on the GPU (…)`."""
        takes = re.search(r"takes about ([\d.]+) (s|min|h)", sentence)
        if takes is None:
            return None
        device = re.search(r"([\d.]+) GB on the GPU", sentence)
        host = re.search(r"([\d.]+) GB(?! on the GPU)", sentence[takes.end() :])
        return cls(
            seconds=float(takes[1]) * _UNITS[takes[2]],
            host_bytes=2**30 * float(host[1]) if host else 0.0,
            device_bytes=2**30 * float(device[1]) if device else 0.0,
        )


class ScaleRow(StrictModel):
    """`seconds` are those of the whole process, from disk to disk; `stages` the parts that it printed. `device_bytes` is the most that it took
    of the GPU, with the context of CUDA; 0 without a GPU. `announcement` is what laaciq said of time and memory, `announced_after` when; the
    peer says nothing. `failure` is its last words, None if it succeeded.
    """

    version: Literal[1] = 1
    size: str
    kind: str
    command: list[str]
    machine: str
    tokens: int
    languages: int
    seconds: float
    stages: dict[str, float]
    memory: Memory
    device_bytes: int
    announcement: str
    announced_after: float
    failure: str | None = None

    @property
    def announced(self) -> Announced | None:
        return Announced.of(self.announcement)


@dataclass
class StageTimes:
    """Seconds by stage, from the plain lines of `laaciq.engine.progress` as they come. A stage within another belongs to the outer one. What
    lies before the first stage and after the last is named too."""

    began: float
    by_title: dict[str, float] = field(default_factory=dict)
    _open: tuple[str, float] | None = None
    _last: float | None = None

    def read(self, line: str, now: float) -> None:
        if self._open is not None:
            title, began = self._open
            if (end := _ENDS.fullmatch(line)) and end["title"] == title:
                self._add(title, now - began)
                self._open, self._last = None, now
        elif begin := _BEGINS.fullmatch(line):
            if self._last is None:
                self._add(BEFORE, now - self.began)
            self._open = (begin["title"], now)

    def end(self, now: float) -> None:
        if self._last is not None:
            self._add(AFTER, now - self._last)

    def _add(self, title: str, seconds: float) -> None:
        self.by_title[title] = self.by_title.get(title, 0.0) + seconds


@dataclass(frozen=True)
class Ended:
    seconds: float
    stages: dict[str, float]
    memory: Memory
    device_bytes: int
    announcement: str
    announced_after: float
    failure: str | None


class DeviceWatch:
    """How much memory of the GPU others take beyond what is taken when it begins."""

    def __init__(self) -> None:
        self.peak = 0
        self._ended = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> DeviceWatch:
        if torch.cuda.is_available():
            self._before = self._taken()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.peak = max(self.peak, self._taken() - self._before)

    @staticmethod
    def _taken() -> int:
        free, whole = torch.cuda.mem_get_info()
        return whole - free


def run_child(words: Sequence[str], *, log: Path, gpu_cap: float, most_seconds: float) -> Ended:
    """Run `benchmarks.scale_child` with these words; `log` receives what it prints, line by line with the second it came in. After
    `most_seconds` it is killed, and its memory so far counts."""
    _counts_pinned()  # before the clock runs
    log.parent.mkdir(parents=True, exist_ok=True)
    figures = log.with_suffix(".memory.json")
    figures.unlink(missing_ok=True)
    began = time.monotonic()
    stages, announcement, announced_after, said = StageTimes(began), "", 0.0, ""
    process = start_module(
        "benchmarks.scale_child", str(figures), str(gpu_cap), str(int(_counts_pinned())), *words,
        environment={"TQDM_DISABLE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    timer = Timer(most_seconds, process.kill)
    timer.start()
    with log.open("w", encoding="utf-8") as file, DeviceWatch() as device:
        for line in process.stdout or ():
            now = time.monotonic()
            file.write(f"[{now - began:7.1f} s] {line}")
            file.flush()
            stages.read(line.rstrip("\n"), now)
            if not announcement and Announced.of(line):
                announcement, announced_after = line.strip(), now - began
            said = said if line.startswith(GROWN) else line.strip() or said
    status = process.wait()
    timer.cancel()
    seconds = time.monotonic() - began
    stages.end(began + seconds)
    failure = None if status == 0 else f"status {status} after {seconds:.0f} s: {said}"
    memory = Memory.model_validate_json(figures.read_text(encoding="utf-8")) if figures.exists() else Memory()
    return Ended(seconds, stages.by_title, memory, device.peak, announcement, announced_after, failure)


def read_rows(out: Path) -> list[ScaleRow]:
    paths = sorted((out / MEASURED_ROWS).glob("rows/*.json"))
    return [ScaleRow.model_validate_json(path.read_text(encoding="utf-8")) for path in paths]
