"""Training variants: figures that were measured elsewhere. They stand in the table as a model of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from laaciq import reference
from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import NotApplicable
from laaciq.lab.measurements.bench import Bench, Measurement
from laaciq.options import REFERENCE_VARIANTS
from laaciq.studies.variants import Variants
from laaciq.trials.estimate import StageCost

NAME = "variants"


def _no_variants(bench: Bench) -> NoReturn:
    raise NotApplicable(
        "one model says nothing about how it would be if it were trained otherwise",
        f"'{REFERENCE_VARIANTS}' beside it, or a file of recipes/measure_variants.py",
    )


def _free(bench: Bench) -> StageCost:
    return replace(bench.losses_cost(), seconds=0.0)


VARIANTS = Measurement(NAME, "figures of training variants", _no_variants, _free)


def variants_file(model: str) -> Path | None:
    """The file of figures that stands in the place of a model; None if it is a model."""
    if model == REFERENCE_VARIANTS:
        return reference.variants_path()
    return Path(model) if model.endswith(".json") else None


def variants_evidence(name: str, path: Path, claims: Iterable[Claim]) -> Evidence:
    """What the figures say, and that they say nothing else."""
    other = NotApplicable("these are figures of training variants, not a model", "a model")
    needed = {need: other for claim in claims for need in claim.needs if need != NAME}
    return Evidence(name, {**needed, NAME: Variants.read(path)})
