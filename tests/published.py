"""The figures published with the theory, as facts to check code against. They are thin as evidence about a model: the note says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from laaciq.planning.screening import Evidence

# Figures by model, with their `source`, and a `note` on how thin they are.
PUBLISHED: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def published_evidence(model: str, *, bits: int) -> Evidence:
    """What was published on `bloom_560m`, `xglm_564m` or `gpt2`, in the form that a screening takes.

    BLOOM's outlier fractions are over its blocks with κ > 100, {5, 21, 22}, at whatever threshold it is screened. No outlier fractions
    were published of the others.
    """
    languages = PUBLISHED[model].get("languages")
    return Evidence(
        block_kurtosis=PUBLISHED[model]["layer_kurtosis"],
        outlier_fractions=languages and {code: row["outlier_fraction"] for code, row in languages.items()},
        bits=bits,
    )
