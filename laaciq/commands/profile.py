"""`profile`: what is in the weights, and how each language uses them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from laaciq import reference
from laaciq.corpus import language, read_split
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder
from laaciq.errors import BadOption
from laaciq.models import ModelFolder, find_model, load
from laaciq.options import REFERENCE, ProfileOptions, is_profile
from laaciq.options.keywords import ProfileKeywords
from laaciq.planning.screening import ScreeningThresholds, screen_profile
from laaciq.profiling.profile import profile_model, with_predictive_redundancy
from laaciq.profiling.results import Profile
from laaciq.report.profile_report import write_profile_report


def profile(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    exposure: Mapping[str, int] | str | Path | None = None,
    progress: Progress | None = None,
    **options: Unpack[ProfileKeywords],
) -> Profile:
    """Measure weights, activations, tokenization and alignment, on calibration text; options as in `ProfileOptions`.

    With `out` the profile is written there, with its report. `exposure`
    (tokens seen in training, by language, or a JSON file of that form) is known for the reference model.
    """
    progress = progress or Progress()
    file = exposure if isinstance(exposure, str | Path) else None
    chosen = ProfileOptions.of(model=model, exposure=file, **options)
    asked, thresholds = chosen.measuring(), ScreeningThresholds.of(outlier_kurtosis=chosen.outlier_kurtosis)
    folder = find_model(chosen.model)
    split = read_split(chosen.texts, seed=asked.seed).select(chosen.languages)
    calibration = split.calibration if chosen.passages is None else split.calibration.spread(chosen.passages)
    seen = read_exposure(exposure) if exposure is not None else _known_exposure(folder)
    target = None if out is None else Path(out)
    store = None
    if target is not None:
        # Languages that are done survive an interruption beside the file.
        store = RunFolder(target.with_name(f"{target.name}.parts"), description={"profile": folder.name})
    loaded = load(folder, device=device)
    found = profile_model(
        loaded,
        calibration,
        asked,
        outlier_kurtosis=thresholds.outlier_kurtosis,
        exposure=seen,
        store=store,
        progress=progress,
    )
    if chosen.predictive:
        found = with_predictive_redundancy(
            found, loaded, replace(split, calibration=calibration), asked, progress=progress
        )
    if target is not None:
        found.write(target)
        write_profile_report(found, screen_profile(found, bits=4, thresholds=thresholds), target)
    return found


def read_or_make(source: str | Path, **options: Any) -> Profile:
    return Profile.read(Path(source)) if is_profile(str(source)) else profile(source, **options)


def read_exposure(source: Mapping[str, int] | str | Path) -> dict[str, int]:
    """Tokens by language, from a mapping or a JSON file; any name of a language will do."""
    if isinstance(source, str | Path):
        try:
            source = json.loads(Path(source).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadOption(
                f"exposure file {source} cannot be read ({error}): write JSON such as {{'eng': 1000}}"
            ) from None
    if not isinstance(source, Mapping) or not all(isinstance(v, int) and v >= 0 for v in source.values()):
        raise BadOption("exposure must give a number of tokens for each language, such as {'eng': 1000, 'swa': 20}")
    return {language(name).code: count for name, count in source.items()}


def _known_exposure(folder: ModelFolder) -> dict[str, int] | None:
    return reference.exposure() if folder.path == reference.path() else None
