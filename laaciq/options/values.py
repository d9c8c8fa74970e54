"""Values of options: named choices, constants, and types that refuse what is out of range."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from laaciq.errors import BadOption

REFERENCE = "reference"
# Figures of its training variants, in the place of a model of the lab.
REFERENCE_VARIANTS = "reference-variants"
BUILTIN = "builtin"
# The `quant_method` in config.json of our checkpoints, by which transformers knows them.
CHECKPOINT_METHOD = "laaciq"
BITS = (2, 3, 4, 5, 6, 7, 8)
# What the sweep and the baseline try unless told otherwise: 5 and 7 bits are seldom stored, and no kernel reads them.
USUAL_BITS = (2, 3, 4, 6, 8)
# Bits of scales, of kept weights, and of everything that is not quantized.
FULL_BITS = 16
# Largest percentage of weights that may stay in 16 bits: beyond it, more bits for all weights are cheaper.
MOST_KEPT = 10.0
# κ above which a block is an outlier block.
OUTLIER_KURTOSIS = 50.0
# Largest weight of a language against another's.
MOST_WEIGHT = 1e6
# Largest seed that all random generators take, with room for the seeds that are derived from it.
MOST_SEED = 2**32 - 2**16

# What a plan minimises; see laaciq.planning.objectives.
Objective = Literal["worst", "worst-quarter", "worst-and-spread", "mean"]
# How much time planning takes.
Effort = Literal["fast", "full"]
# Where a checkpoint is to run; see laaciq.planning.runtimes.
Runtime = Literal["laaciq", "vllm", "vllm-cpu", "llama.cpp"]
# Runtimes that read exports.
ExportRuntime = Literal["vllm", "vllm-cpu", "llama.cpp"]
# Which part of the texts is measured.
SensitivityPart = Literal["calibration", "test"]
# What an intervention sets.
Cause = Literal["kurtosis", "tokens", "bits", "pruning"]
# Formats that `laaciq export` writes.
ExportFormatName = Literal["compressed-tensors", "gptq", "gguf"]

# The rule that sets the grid of every group.
Clip = Literal["minmax", "mse", "aciq", "la-aciq", "effective", "minimax"]
# Rules that weigh weights by the inputs that languages give them.
CLIPS_READING_TEXT: frozenset[Clip] = frozenset({"la-aciq", "effective", "minimax"})
# To the nearest code; or so that weights not yet rounded compensate for the error (GPTQ); or so that they compensate for the errors of
# earlier blocks too, with codes refined afterwards.
Rounding = Literal["nearest", "second-order", "compensated"]


class Repeated:
    """Marks an option that is given once per entry on the command line, because an entry may itself hold commas."""


def flag(name: str) -> str:
    """An option's name on the command line."""
    return {"max_degradation": "--max-D"}.get(name, f"--{name.replace('_', '-')}")


def _offered(bits: int) -> int:
    if bits not in BITS:
        raise BadOption(f"{bits} bits are not supported: give one of {', '.join(map(str, BITS))}")
    return bits


def _positive(size: int | str) -> int | str:
    if isinstance(size, int) and size < 1:
        raise BadOption(f"group size {size} is out of range: give a positive number, 'channel' or 'tensor'")
    return size


def _keepable(percent: float) -> float:
    if not 0 <= percent <= MOST_KEPT:
        raise BadOption(f"{percent:g} % of the weights cannot stay in 16 bits: give 0 to {MOST_KEPT:g}")
    return percent


def _nameable(source: str, field: ValidationInfo) -> str:
    if not source.strip():
        raise BadOption(f"{flag(str(field.field_name))} is empty: give a path or a name")
    if "\0" in source or any("\ud800" <= character <= "\udfff" for character in source):
        raise BadOption(f"{flag(str(field.field_name))} {source!r} is not a name in UTF-8: rename the file or folder")
    return source


def _some(names: tuple[str, ...], field: ValidationInfo) -> tuple[str, ...]:
    if not names or not all(name.strip() for name in names):
        raise BadOption(f"{flag(str(field.field_name))} names no language: give codes or names, such as eng,swa")
    return names


def _weights(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        parse_language_weight(entry)
    return entries


def parse_language_weight(entry: str) -> tuple[str, float]:
    """`"swa=3"` → `("swa", 3.0)`."""
    name, separator, number = entry.partition("=")
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not separator or not name.strip() or not 0 <= weight <= MOST_WEIGHT:
        raise BadOption(f"--language-weight {entry!r} is not a weight: write for example 'swa=3'")
    return name.strip(), weight


Bits = Annotated[int, AfterValidator(_offered)]
KeptPercent = Annotated[float, AfterValidator(_keepable)]
GroupSize = Annotated[int | Literal["channel", "tensor"], AfterValidator(_positive)]
# A path or a name; Python callers may give a `Path`.
Source = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value), AfterValidator(_nameable)
]
Languages = Annotated[tuple[str, ...], AfterValidator(_some)]
Entries = Annotated[tuple[str, ...], Repeated()]
LanguageWeights = Annotated[tuple[str, ...], Repeated(), AfterValidator(_weights)]
