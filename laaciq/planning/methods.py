"""Methods by name: how the grid of every group is found, and whether languages get tables of their own."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from laaciq.errors import BadOption
from laaciq.quantization.plan import READ_TEXT, Clip, Rounding


@dataclass(frozen=True)
class Method:
    """`adaptive` methods add tables of scales by cluster of languages, over codes that all share. `planned` ones choose the storage of every
    tensor by what it costs the languages."""

    name: str
    summary: str
    clip: Clip
    rounding: Rounding = "nearest"
    adaptive: bool = False
    planned: bool = False

    @property
    def reads_text(self) -> bool:
        return self.adaptive or self.clip in READ_TEXT or self.rounding != "nearest"


METHODS = {
    method.name: method
    for method in (
        Method(
            "planned",
            "Bits and groups by tensor planned for the worst-off language within --budget; codes make up for errors, languages are weighed.",
            "effective",
            rounding="compensated",
            planned=True,
        ),
        Method("rtn", "Round to nearest on the min–max grid of every group.", "minmax"),
        Method("mse", "The grid of every group that minimises its true squared error.", "mse"),
        Method("aciq", "ACIQ: clip every group at σ·f(κ, B), by our fit of f.", "aciq"),
        Method(
            "seed", "LA-ACIQ as published: clip every group at σ·f(κ_eff(λ), B), κ_eff averaged over languages.", "seed"
        ),
        Method("effective", "The best grid for w⊙a: weights weighed by the languages' mean input.", "effective"),
        Method("minimax", "One grid a group that minimises the worst language's weighted error.", "minimax"),
        Method(
            "gptq",
            "Second-order rounding, block by block, calibrated on all languages equally; grids as in 'effective'.",
            "effective",
            rounding="second-order",
        ),
        Method(
            "adaptive",
            "Codes as in 'effective', scales by cluster of languages, chosen at run time.",
            "effective",
            adaptive=True,
        ),
    )
}


def find_method(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(METHODS)}"
    raise BadOption(f"unknown method {name!r}: {hint}")
