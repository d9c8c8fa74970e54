"""Commands of laaciq on tiny inputs, each in a forked process: the libraries are imported once, and a kill is a real one.

Nothing is computed in the process that forks, since threads of libraries do not survive a fork.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import laaciq.backends
import laaciq.cli
import laaciq.report
from benchmarks.system_calls import watch
from laaciq.engine.file_list import FILE_LIST, PARTIAL, STAGING
from laaciq.engine.files import write_text
from laaciq.engine.lock import LOCK
from laaciq.options import VERBS

LANGUAGES = ("eng", "swa")
_OPTIONS = ["--texts", "../../texts", "--served-bound", "100", "--json"]
# What is in the weights, losses by rounding, and the same text in more tokens.
_CLAIMS = ["--claims", "effective-kurtosis,tokens-cause-loss"]
# They run in a folder of their own, and write to `out`. The lab also writes the checkpoint with outliers to `laaciq-runs`.
COMMANDS = {
    "run": ["run", "../../model", *_OPTIONS, "--out", "out"],
    "quantize": ["quantize", "../../model", *_OPTIONS, "--budget", "4.5", "--out", "out"],
    "compare": ["compare", "../../model", *_OPTIONS, "--methods", "rtn,gptq", "--out", "out"],
    "plan": ["plan", "../../model", *_OPTIONS, "--budget", "4.5", "--out", "out"],
    "gateway": ["gateway", "../../model", *_OPTIONS, "--protect", "1", "--out", "out"],
    "tasks": ["tasks", "out", "--texts", "../../texts", "--languages", "eng"],
    "intervene": ["intervene", "../../model", *_OPTIONS, "--kurtosis", "20", "--out", "out"],
    "lab run": ["lab", "run", "../../model+outliers", *_OPTIONS, *_CLAIMS, "--out", "out"],
}
# What a process leaves only if it was killed.
_LEFT_BEHIND = (STAGING, LOCK, PARTIAL)
# What is compared: all that programs read, and nothing that tells the time.
_COMPARED = (".json", ".jsonl", ".yaml", ".safetensors")
# Longer than any of these commands takes, also on a machine under load.
_HANGS_AFTER = 300.0


def prepare_commands(commands: Iterable[str], folder: Path) -> None:
    """Import what these commands import when they need it, and write a random model of two blocks and twenty short passages per language."""
    verbs = {kind.typed_verb(): verb for verb, kind in VERBS.items()}
    modules = [f"laaciq.commands.{verbs[command]}" for command in commands]
    if set(commands) - {"tasks"}:
        modules += [
            module.name
            for package in (laaciq.cli, laaciq.report, laaciq.backends)
            for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        ]
        if not (folder / "model").exists():
            _in_child(lambda: _write_model(folder))
    for module in modules:
        importlib.import_module(module)
    texts = laaciq.read_texts()
    for code in LANGUAGES:
        write_text(folder / "texts" / f"{code}.txt", "\n".join(text[:40] for text in texts[code].texts[:20]))
    laaciq.read_split(folder / "texts")  # imports more


def _write_model(folder: Path) -> None:
    from tests.tiny import save_tiny

    save_tiny("llama", folder / "unfinished").rename(folder / "model")


def _in_child(act: Callable[[], object]) -> None:
    child = os.fork()
    if not child:
        act()
        os._exit(0)
    os.waitpid(child, 0)


@dataclass(frozen=True)
class Ended:
    """`status` as of `subprocess`: negative for a signal."""

    status: int
    seconds: float
    out: str
    error: str

    @property
    def last_line(self) -> str:
        return (self.error.strip().splitlines() or [""])[-1]


@dataclass(frozen=True)
class Trial:
    """One command in a folder of its own."""

    command: str
    folder: Path

    def run(self, *, prepare: Callable[[], None] | None = None, stop: tuple[float, int] | None = None) -> Ended:
        """`prepare` is called in the process before the command. `stop` is a moment in seconds and a signal."""
        pipes = os.pipe(), os.pipe()
        began = time.monotonic()
        child = os.fork()
        if not child:
            self._become([write for _, write in pipes], prepare)
        for _, write in pipes:
            os.close(write)
        texts = {read: b"" for read, _ in pipes}
        moment, number = stop or (_HANGS_AFTER, signal.SIGKILL)
        try:
            if not _listen(texts, began + moment):
                os.kill(child, number)
                if not _listen(texts, time.monotonic() + _HANGS_AFTER) or stop is None:
                    raise RuntimeError(f"{self.command} hangs in {self.folder}")
        finally:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            for read in texts:
                os.close(read)
        out, error = (text.decode(errors="replace") for text in texts.values())
        return Ended(os.waitstatus_to_exitcode(status), time.monotonic() - began, out, error)

    def _become(self, streams: list[int], prepare: Callable[[], None] | None) -> NoReturn:
        """This process becomes the command."""
        code = 1
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for handle, stream in enumerate(streams, start=1):
                os.dup2(stream, handle)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
            self.folder.mkdir(parents=True, exist_ok=True)
            os.chdir(self.folder)
            sys.argv = ["laaciq", *COMMANDS[self.command]]
            if prepare is not None:
                prepare()
            laaciq.cli.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    @property
    def torn(self) -> list[str]:
        """JSON files that cannot be read. What is not in its place yet does not count."""
        return [name for name, path in self._files.items() if path.suffix == ".json" and not _is_json(path)]

    @property
    def result(self) -> dict[str, Any]:
        """JSON without the seconds that were measured, and digests of other files, without the name of the folder."""
        return {name: self._content(path) for name, path in self._files.items() if path.suffix in _COMPARED}

    def _content(self, path: Path) -> Any:
        content = path.read_bytes().replace(os.fsencode(self.folder), b"")
        return without_seconds(json.loads(content)) if path.suffix == ".json" else hashlib.sha256(content).hexdigest()

    @property
    def left_behind(self) -> list[str]:
        names = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*")]
        return [name for name in names if Path(name).name in _LEFT_BEHIND or "partial" in name]

    @property
    def _files(self) -> dict[str, Path]:
        paths = [path for path in self.folder.rglob("*") if path.is_file() and STAGING not in path.parts]
        return {str(path.relative_to(self.folder)): path for path in sorted(paths) if path.name != FILE_LIST}


@dataclass(frozen=True)
class Undisturbed:
    """What a command gives if nothing happens to it."""

    trial: Trial

    @cached_property
    def calls(self) -> list[str]:
        """Names of the calls by which it changes files, in order."""
        names = self.trial.folder.with_suffix(".calls")
        names.unlink(missing_ok=True)
        names.parent.mkdir(parents=True, exist_ok=True)

        def prepare() -> None:
            handle, write = os.open(names, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), os.write

            def note(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
                write(handle, f"{name}\n".encode())
                return call(*arguments)

            watch(note)

        remove_folder(self.trial.folder)
        self.trial.run(prepare=prepare)
        return names.read_text().splitlines()

    @cached_property
    def ended(self) -> Ended:
        _ = self.calls  # once before, so that the disk's cache is warm
        remove_folder(self.trial.folder)
        ended = self.trial.run()
        if ended.status:
            raise RuntimeError(f"{self.trial.command} failed: {ended.error}")
        return ended

    @cached_property
    def result(self) -> dict[str, Any]:
        _ = self.ended
        return self.trial.result

    @property
    def sizes(self) -> list[int]:
        """Sizes of all files that it wrote, each once."""
        _ = self.ended
        return sorted({path.stat().st_size for path in self.trial.folder.rglob("*") if path.is_file()})

    def difference(self, trial: Trial, ended: Ended) -> str | None:
        """What is wrong with a trial of the same command that was left alone at last; None if nothing is."""
        if ended.status:
            return f"status {ended.status}: {ended.last_line}"
        if _printed(ended) != _printed(self.ended):
            return "something else printed"
        if differing := [name for name, value in self.result.items() if trial.result.get(name) != value]:
            return f"other {differing[0]}"
        if more := trial.result.keys() - self.result.keys():
            return f"{min(more)} too much"
        return f"{trial.left_behind[0]} left behind" if trial.left_behind else None


def _printed(ended: Ended) -> Any:
    return without_seconds(json.loads(ended.out)) if ended.out.startswith("{") else ended.out


def without_seconds(value: Any) -> Any:
    """`compare` says how long a method took."""
    if isinstance(value, dict):
        return {name: without_seconds(inner) for name, inner in value.items() if name != "seconds"}
    return [without_seconds(inner) for inner in value] if isinstance(value, list) else value


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _listen(texts: dict[int, bytes], until: float) -> bool:
    """Add what comes through the pipes to `texts`. Did they end by that time?"""
    waiting = list(texts)
    while waiting and (left := until - time.monotonic()) > 0:
        for read in select.select(waiting, [], [], left)[0]:
            if chunk := os.read(read, 2**16):
                texts[read] += chunk
            else:
                waiting.remove(read)
    return not waiting


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True
