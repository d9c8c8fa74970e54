"""What can be compared, by the names that users write: back ends, and methods of ours."""

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
    """A back end, or a method of ours; a planned one may have its size in bits per weight: 'planned@4.125'."""

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
        """Of a method of ours. Without a size, a plan may take what plain groups of 64 take: a quarter of a bit above `bits`."""
        size = {"bits": bits} if self.budget is None else {"budget": self.budget}
        return WeightOptions.of(method=self.method, **size)


def conditions(compared: Iterable[ComparedMethod]) -> list[Condition]:
    """Options of `laaciq compare` that have an effect on some of these methods only."""
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
    """Each once; by default every back end and two methods of ours."""
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
        f"unknown method {name!r}: " + (f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}")
    )


def _size(name: str, text: str) -> float:
    if not METHODS[name.partition("@")[0]].planned:
        raise BadOption(f"{name!r}: only a planned method takes a size, as in 'planned@4.125'")
    try:
        return float(text)
    except ValueError:
        raise BadOption(f"{name!r} has no size: give bits per weight, such as 'planned@4.125'") from None
