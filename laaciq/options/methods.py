"""Methods by name: the rule that sets grids, the rounding, and the options that each method reads."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from laaciq.errors import BadOption
from laaciq.options.values import CLIPS_READING_TEXT, Clip, Rounding

_GRID = frozenset({"bits", "group_size", "symmetric"})
# Rules that say which tensors get more bits, and which weights stay in 16 bits.
_RULES = frozenset(
    {
        "keep",
        "keep_by",
        "protect",
        "protect_bits",
        "outlier_bits",
        "outlier_kurtosis",
        "outlier_by",
        "attention_bits",
        "embedding_bits",
        "rank",
        "separate",
    }
)
# What decides which calibration text is read, wherever any is.
_CALIBRATION = frozenset({"calibration_languages", "hold_out"})
_RULE_METHOD = _GRID | _RULES | _CALIBRATION | {"tune"}
_PLANNED = _CALIBRATION | {
    "bits",
    "group_size",
    "tune",
    "budget",
    "budget_for",
    "objective",
    "language_weight",
    "effort",
    "runtime",
}


@dataclass(frozen=True)
class Method:
    """A method by its name on the command line; `reads` are the options of `WeightOptions` that have an effect with it.

    `adaptive` methods add tables of scales by cluster of languages, over codes that all languages share. `planned` methods choose the
    storage format of every tensor by what it costs each language.
    """

    name: str
    summary: str
    clip: Clip
    rounding: Rounding = "nearest"
    adaptive: bool = False
    planned: bool = False
    reads: frozenset[str] = _RULE_METHOD

    @property
    def reads_text(self) -> bool:
        return self.adaptive or self.clip in CLIPS_READING_TEXT or self.rounding != "nearest"


METHODS = {
    method.name: method
    for method in (
        Method(
            "planned",
            "Plans bits and group size per tensor for the worst-off language within --budget. Rounding compensates for errors, "
            "and languages that lose more weigh more.",
            "effective",
            rounding="compensated",
            planned=True,
            reads=_PLANNED,
        ),
        Method("rtn", "Rounds to nearest on the min–max grid of every group.", "minmax"),
        Method("mse", "Rounds to nearest on the grid that minimises the squared error of every group.", "mse"),
        Method("aciq", "ACIQ: clips every group at σ·f(κ, B), with our fit of f at every width.", "aciq"),
        Method(
            "la-aciq",
            "LA-ACIQ: clips every group at σ·f(κ_eff(λ), B), with κ_eff averaged over languages. f is the published function at 4 bits and "
            "our fit at other widths, for which none is published.",
            "la-aciq",
        ),
        Method(
            "effective",
            "Searches the grid that minimises the error of every group, weighted by the languages' mean squared inputs (w⊙a).",
            "effective",
        ),
        Method(
            "minimax",
            "Searches the grid that minimises the error of every group in its worst language, weighted by that language's inputs.",
            "minimax",
        ),
        Method(
            "gptq",
            "GPTQ: second-order rounding, block by block, calibrated on all languages equally. Grids as in 'effective'.",
            "effective",
            rounding="second-order",
        ),
        Method(
            "adaptive",
            "Codes as in 'effective', with one table of scales per cluster of languages, switched at run time.",
            "effective",
            adaptive=True,
            # Tables of scales are fitted to layer inputs, which tuning would change.
            reads=_RULE_METHOD - {"tune"} | {"table_overhead"},
        ),
    )
}


def find_method(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known methods: {', '.join(METHODS)}"
    raise BadOption(f"unknown method {name!r}: {hint}")


def readers(option: str) -> list[str]:
    """Names of the methods that read an option."""
    return [method.name for method in METHODS.values() if option in method.reads]
