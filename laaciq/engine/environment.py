"""What results depend on beside their inputs and options: the versions of the libraries that compute them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import metadata

from laaciq.version import __version__

# tokenizers splits text, scipy solves for the plan, numpy draws at random; torch and transformers compute all else.
_LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy")


@cache
def versions() -> dict[str, str]:
    """By name of the package; our own first."""
    return {"laaciq": __version__, **{name: metadata.version(name) for name in _LIBRARIES}}


def version_words(named: Mapping[str, str] | None = None) -> str:
    """Versions in words, such as `laaciq 0.1.0, torch 2.6.0`: those of this process, or others."""
    return ", ".join(f"{name} {version}" for name, version in (versions() if named is None else named).items())


def environment_words(computed_with: Mapping[str, str]) -> str:
    """Versions, and the `dtype` and the `device` of the numbers."""
    libraries = {name: version for name, version in computed_with.items() if name not in ("device", "dtype")}
    words = version_words(libraries)
    if {"device", "dtype"} <= computed_with.keys():
        stored = computed_with["dtype"] == "auto"
        words += (
            f"; in {'the type of the checkpoint' if stored else computed_with['dtype']} on {computed_with['device']}"
        )
    return words
