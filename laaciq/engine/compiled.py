"""Functions compiled by numba. Importing this takes half a second: only modules that compute import it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled when it is first called and kept on disk. It releases the interpreter lock."""
    try:
        return numba.njit(function, nogil=True, cache=True)
    except RuntimeError:
        # Neither the package's folder nor the user's can be written to.
        return numba.njit(function, nogil=True)
