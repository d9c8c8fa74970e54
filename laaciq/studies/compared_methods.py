"""Methods that can be compared, by the names that users type: back ends, and our methods."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from laaciq.backends.contract import Backend
from laaciq.backends.registry import BACKENDS
from laaciq.errors import BadOption
from laaciq.options import WeightOptions
from laaciq.options.base import Condition, Only
from laaciq.options.methods import METHODS

# Compared beside every back end by default.
OURS = ("planned", "gptq")


@dataclass(frozen=True)
class ComparedMethod:
    """A back end or one of our methods; a planned method may have a size in bits per weight: 'planned@4.125'."""

    name: str
    backend: Backend | None = None
    budget: float | None = None

    @property
    def method(self) -> str:
        return self.name.partition("@")[0]

    @property
    def reads_text(self) -> bool:
        return METHODS[self.method].reads_text if self.backend is None else self.backend.reads_text

    def options(self, bits: int) -> WeightOptions:
        """Options of one of our methods. Without a size, a plan gets that of plain groups of 64: a quarter of a bit above `bits`."""
        size = {"bits": bits} if self.budget is None else {"budget": self.budget}
        return WeightOptions.of(method=self.method, **size)


def conditions(compared: Iterable[ComparedMethod]) -> list[Condition]:
    """Conditions for options of `laaciq compare` that affect only some of these methods."""
    methods = list(compared)
    text_free = "has no effect, because none of these methods reads text: compare one that does, such as gptq"
    sized = "has no effect, because each method here names its own size: leave it out"
    return [
        Only(
            frozenset({"calibration", "calibration_passages"}), lambda _: any(m.reads_text for m in methods), text_free
        ),
        Only(frozenset({"bits"}), lambda _: any(m.budget is None for m in methods), sized),
    ]


def find_compared_methods(names: Iterable[str] | None) -> list[ComparedMethod]:
    """The named methods, each once; by default every back end and two of our methods."""
    return [find_compared_method(name) for name in dict.fromkeys((*BACKENDS, *OURS) if names is None else names)]


def find_compared_method(name: str) -> ComparedMethod:
    if name in BACKENDS:
        return ComparedMethod(name, BACKENDS[name])
    method, sized, size = name.partition("@")
    if method in METHODS:
        return ComparedMethod(name, budget=_size(name, size) if sized else None)
    known = (*BACKENDS, *METHODS)
    near = difflib.get_close_matches(name, known, n=1)
    raise BadOption(
        f"unknown method {name!r}: " + (f"did you mean {near[0]!r}?" if near else f"known methods: {', '.join(known)}")
    )


def _size(name: str, text: str) -> float:
    if not METHODS[name.partition("@")[0]].planned:
        raise BadOption(f"{name!r}: only a planned method takes a size, as in 'planned@4.125'")
    try:
        return float(text)
    except ValueError:
        raise BadOption(f"{name!r} has no size: give bits per weight, such as 'planned@4.125'") from None
