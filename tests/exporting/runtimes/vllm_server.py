"""`vllm serve` on the loopback interface, from an environment of its own, asked over HTTP."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
VLLM = ROOT / ".venv-vllm/bin/vllm"
# Two cores take 40 s.
_START_SECONDS, _ANSWER_SECONDS, _STOP_SECONDS = 300, 120, 30
_SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Our sources are not for the server.
    "PYTHONPATH": "",
}


class Refused(Exception):
    """The server ended before it answered; the text is what it wrote."""


@dataclass(frozen=True)
class Server:
    port: int

    def score(self, text: str) -> tuple[list[int], list[float]]:
        """Token ids of a text, and log-probabilities of all of them but the first."""
        choice = self._complete(text, 1, prompt_logprobs=0)
        ids, by_place = choice["prompt_token_ids"], choice["prompt_logprobs"]
        return ids, [by_token[str(token)]["logprob"] for token, by_token in zip(ids[1:], by_place[1:], strict=True)]

    def continue_greedily(self, ids: list[int], tokens: int) -> list[int]:
        return self._complete(ids, tokens)["token_ids"]

    def _complete(self, prompt: str | list[int], tokens: int, **options: int) -> dict[str, Any]:
        asked = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "return_token_ids": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(asked | options).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as response:  # noqa: S310 (loopback)
            (choice,) = json.load(response)["choices"]
        return choice

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as response:
                return response.status == 200
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def serve(folder: Path, log: Path, *, dtype: str = "bfloat16") -> Iterator[Server]:
    """A server for the model in `folder`, with all its processes ended when the block ends. `Refused` if it does not load it."""
    if not VLLM.exists():
        raise FileNotFoundError(f"{VLLM} does not exist: 'make test-runtimes' sets it up")
    server = Server(_free_port())
    words = [str(VLLM), "serve", str(folder), "--host", "127.0.0.1", "--port", str(server.port)]
    words += ["--served-model-name", "model", "--dtype", dtype, "--max-model-len", "512", "--enforce-eager"]
    inherited = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    with log.open("w") as output:
        # In a session of its own, so that it can be ended with all that it started.
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=inherited | _SETTINGS,
            cwd=log.parent,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 (one thread starts it)
        )
    try:
        _wait(process, server, log)
        yield server
    finally:
        _end(process)


def _wait(process: subprocess.Popen, server: Server, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not server.healthy():
        if process.poll() is not None:
            raise Refused(log.read_text())
        if time.monotonic() > deadline:
            raise TimeoutError(f"vLLM did not start within {_START_SECONDS} s:\n{log.read_text()[-3000:]}")
        time.sleep(0.5)


def _end(process: subprocess.Popen) -> None:
    """End the server, and then whatever of its session outlived it."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(_STOP_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _end_with_parent() -> None:
    """Linux ends the server if the tests are killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
