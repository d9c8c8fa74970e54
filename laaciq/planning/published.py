"""The figures published with the theory, as facts to check code against. They are thin as evidence about a model: the note says why."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from laaciq.errors import BadOption
from laaciq.planning.screening import Evidence


@cache
def _read() -> str:
    return resources.files("laaciq.reference").joinpath("published.json").read_text(encoding="utf-8")


def published() -> dict[str, Any]:
    """All figures, with their `source` and a `note` on how thin they are."""
    return json.loads(_read())


def published_evidence(model: str, *, bits: int) -> Evidence:
    """What was published on `bloom_560m`, `xglm_564m` or `gpt2`, as a screening takes it.

    BLOOM's outlier fractions are over its blocks with κ > 100, {5, 21, 22}, at whatever threshold it is screened. Of the others no outlier
    fractions were published.
    """
    figures = {name: entry for name, entry in published().items() if "layer_kurtosis" in entry}
    if model not in figures:
        raise BadOption(f"no kurtosis by block was published for {model!r}: there are {', '.join(figures)}")
    entry = figures[model]
    languages = entry.get("languages")
    return Evidence(
        block_kurtosis=entry["layer_kurtosis"],
        outlier_fractions=languages and {code: row["outlier_fraction"] for code, row in languages.items()},
        bits=bits,
    )
