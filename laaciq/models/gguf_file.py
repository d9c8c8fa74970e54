"""Writing a GGUF file, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laaciq.errors import MissingExtra, install_hint


def import_gguf() -> Any:
    try:
        import gguf
    except ImportError:
        raise MissingExtra(f"GGUF files need the package gguf: {install_hint('gguf')}") from None
    return gguf


@contextmanager
def gguf_file(path: Path, architecture: str) -> Iterator[Any]:
    """A `gguf.GGUFWriter` that takes keys and tensors; the file is at `path` when the block ends without an error.

    Tensors wait in a temporary file until all are known, since the file begins with a table of them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".partial-{path.name}")
    writer = import_gguf().GGUFWriter(partial, architecture, use_temp_file=True)
    try:
        yield writer
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(partial, path)
    except BaseException:
        writer.close()
        partial.unlink(missing_ok=True)
        raise
