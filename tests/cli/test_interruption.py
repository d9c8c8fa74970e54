"""Ctrl-C and SIGTERM, seen from outside the process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from laaciq.cli.interruption import interruption_message

# Commands of the real command line whose work is replaced by waiting, within a block that must be left in order.
_SCRIPT = """
import time
from laaciq import cli

def wait(out: str = ""):
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        print("left in order", flush=True)

for name in ("run", "texts"):
    cli.app.command(name)(wait)
cli.main()
"""


@pytest.mark.parametrize(
    ("command", "number", "status", "continued"),
    [
        ("run", signal.SIGINT, 130, " Continue with: {script} run --out 'my folder'"),
        ("run", signal.SIGTERM, 143, " Continue with: {script} run --out 'my folder'"),
        ("texts", signal.SIGINT, 130, ""),
    ],
)
def test_an_interrupted_command_ends_with_one_line(tmp_path, command, number, status, continued):
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    words = [sys.executable, str(script), command, "--out", "my folder"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        printed, complaints = process.communicate(timeout=60)
    assert complaints == f"Interrupted.{continued.format(script=script)}\n"
    assert printed == "left in order\n"
    assert process.returncode == status


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/venv/laaciq/__main__.py", "plan"], f"Interrupted. Continue with: {sys.executable} -m laaciq plan"),
        (["/opt/bin/laaciq", "sweep", "a b"], "Interrupted. Continue with: /opt/bin/laaciq sweep 'a b'"),
        (["/opt/bin/laaciq", "lab", "run", "m"], "Interrupted. Continue with: /opt/bin/laaciq lab run m"),
        (["/opt/bin/laaciq", "intervene"], "Interrupted. Continue with: /opt/bin/laaciq intervene"),
        (["/opt/bin/laaciq", "lab", "list"], "Interrupted."),
        (["/opt/bin/laaciq", "export", "--out", "run"], "Interrupted."),
        (["/opt/bin/laaciq"], "Interrupted."),
    ],
)
def test_the_line_names_a_command_only_where_it_would_continue(arguments, message):
    assert interruption_message(arguments) == message
