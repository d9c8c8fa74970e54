"""All back ends by name. A new library is a file here that ends in `BACKENDS`, and its name in `_FILES`."""

from __future__ import annotations

from importlib import import_module

from laaciq.backends.contract import Backend

_FILES = ("autoround", "bitsandbytes", "gptqmodel", "hqq", "llamacpp", "llmcompressor", "quanto", "torchao")

BACKENDS: dict[str, Backend] = {
    backend.name: backend for file in _FILES for backend in import_module(f"laaciq.backends.{file}").BACKENDS
}
