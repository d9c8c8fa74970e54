"""All back ends by name. A new library is a file here that ends in `BACKENDS`, and its name in `_FILES`."""

from __future__ import annotations

import difflib
from importlib import import_module

from laaciq.backends.contract import Backend
from laaciq.errors import BadOption

_FILES = ("autoround", "bitsandbytes", "gptqmodel", "hqq", "llamacpp", "llmcompressor", "quanto", "torchao")

BACKENDS: dict[str, Backend] = {
    backend.name: backend for file in _FILES for backend in import_module(f"laaciq.backends.{file}").BACKENDS
}


def find_backend(name: str) -> Backend:
    if name in BACKENDS:
        return BACKENDS[name]
    near = difflib.get_close_matches(name, BACKENDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(BACKENDS)}"
    raise BadOption(f"unknown back end {name!r}: {hint}")
