"""Modules of this package that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PACKAGES = Path(__file__).parents[2]


def start_module(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, **streams: Any
) -> subprocess.Popen[str]:
    """Start `python -m module`, with these variables added to the environment. Nothing is imported from the current folder, which may hold a
    stranger's files."""
    variables = os.environ | (environment or {})
    paths = [str(_PACKAGES), *filter(None, [variables.get("PYTHONPATH")])]
    command = [sys.executable, "-P", "-m", module, *arguments]
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    # Words go to the process as they are, without a shell.
    return subprocess.Popen(command, env=variables, text=True, **streams)  # noqa: S603
