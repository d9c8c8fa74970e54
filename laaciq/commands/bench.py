"""`bench`: measure speed and memory in a separate process, and return the result or the reason why it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Unpack

from laaciq import errors
from laaciq.commands.settings import spells_out
from laaciq.engine.bfloat16 import SAFE_BFLOAT16
from laaciq.engine.escaping import command_words
from laaciq.engine.processes import start_module
from laaciq.engine.progress import Progress, default_progress
from laaciq.engine.run_folder import read_marker
from laaciq.errors import BadOption, LaaciqError, OutputConflict, TooLittleMemory
from laaciq.options import REFERENCE, BenchOptions, SpeedOptions
from laaciq.options.keywords import BenchKeywords
from laaciq.speed.results import ROUNDS, Bench, Request

# Loading, a warm-up and the rounds, for both models.
_STEPS = 2 * (1 + 1 + ROUNDS)


@spells_out(BenchOptions, BenchKeywords)
def bench(
    checkpoint: str | Path,
    *,
    device: str = "auto",
    progress: Progress | None = None,
    **options: Unpack[BenchKeywords],
) -> Bench:
    """Speed and memory of `checkpoint` and of its original; options as in `BenchOptions`.

    Without `against` the original is the model of the run that wrote the checkpoint.
    """
    chosen = BenchOptions.of(checkpoint=checkpoint, **options)
    progress = progress or default_progress()
    original = chosen.against or recorded_original(Path(chosen.checkpoint))
    if chosen.against is None:
        progress.say(f"The original is {original}, by run.json; give another with --against.")
    request = Request(checkpoint=chosen.checkpoint, against=original, device=device, options=chosen.group(SpeedOptions))
    # What the user has set stays.
    environment = SAFE_BFLOAT16 | os.environ if chosen.dtype == "bfloat16" else None
    # What libraries print to standard error is shown only if the process fails.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints,
        start_module(
            "laaciq.speed.child",
            request.model_dump_json(),
            environment=environment,
            stdout=subprocess.PIPE,
            stderr=complaints,
        ) as child,
    ):
        try:
            answer = _answer(child.stdout or (), progress)
            status = 0 if answer else child.wait()
        finally:
            child.kill()
        if "result" in answer:
            return Bench.model_validate(answer["result"])
        if "error" in answer:
            raise getattr(errors, answer["error"])(answer["message"])
        complaints.seek(0)
        raise death(status, complaints.read(), chosen.dtype)


def recorded_original(checkpoint: Path) -> str:
    """The model in the command that run.json records above the checkpoint. A command without a model is for the reference model."""
    for folder in checkpoint.absolute().parents[:2]:
        try:
            words = command_words((read_marker(folder) or {}).get("command", ""))
        except OutputConflict:  # some other run.json
            continue
        match words:
            case ["laaciq", "run", model, *_] if not model.startswith("--"):
                return model
            case ["laaciq", "run", *_]:
                return REFERENCE
    raise BadOption(f"{checkpoint} does not say what it was made from: give the original with --against")


def _answer(lines: Iterable[str], progress: Progress) -> dict[str, Any]:
    """An empty line is a step, any other line the answer; empty if the process ended without one."""
    with progress.stage("loading and measuring", _STEPS) as advance:
        for line in lines:
            if line.strip():
                return json.loads(line)
            advance(1)
    return {}


def death(status: int, complaints: str, dtype: str) -> LaaciqError:
    """Why a process ended without an answer."""
    if status == -signal.SIGILL:
        return BadOption(f"this processor lacks an instruction that {dtype} needs: give --dtype float32")
    if status == -signal.SIGKILL:
        return TooLittleMemory(
            "the measurement was killed, most likely for lack of memory: try a smaller --batch or model"
        )
    last_words = complaints.strip().rpartition("\n")[2] or f"exit status {status}"
    end = f"died of {signal.Signals(-status).name}" if status < 0 else f"failed ({last_words})"
    return LaaciqError(f"the measurement {end}: try --dtype float32 or --device cpu")
