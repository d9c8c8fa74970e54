"""Packages whose names are imported when they are first used.

Importing torch and transformers takes seconds. `laaciq check`, `laaciq methods`, help and completion on TAB need neither, but they import
modules of packages that also hold heavy ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, module_of: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` (PEP 562) of `package`. `module_of` maps each public name to the module that defines it.

    No name may equal that of a submodule: Python binds the submodule to the package as soon as anything imports it.
    """

    def __getattr__(name: str) -> object:
        if name in module_of:
            return getattr(import_module(module_of[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
