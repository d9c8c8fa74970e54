"""What commands print to standard output: tables, sentences, JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import BaseModel
from rich.console import RenderableType

from laaciq.engine.escaping import json_text
from laaciq.engine.terminal import Terminal


def print_table(*tables: RenderableType) -> None:
    """Tables and sentences, wrapped at the width of the terminal."""
    for table in tables:
        Terminal().print(table)


def print_lines(*lines: str) -> None:
    """Sentences and paths as they are: unwrapped, so that a command can be copied."""
    for line in lines:
        Terminal().print(line, soft_wrap=True)


def print_json(result: BaseModel | Any) -> None:
    """A result as JSON, which means the same in a terminal and in a pipe."""
    document = (
        result.model_dump_json(indent=1)
        if isinstance(result, BaseModel)
        else json.dumps(result, indent=1, ensure_ascii=False)
    )
    sys.stdout.write(f"{json_text(document)}\n")
