"""`profile`: what is in the weights, and how each language uses them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from laaciq import reference
from laaciq.corpus import language, read_split
from laaciq.engine.progress import Progress
from laaciq.engine.store import MemoryStore, RunFolder, Store, key_of
from laaciq.errors import BadOption
from laaciq.models import ModelFolder, find_model
from laaciq.models.loading import pick_device
from laaciq.options import BUILTIN, REFERENCE, MeasureOptions
from laaciq.planning.screening import ScreeningThresholds, screen_profile
from laaciq.profiling.profile import profile_model, with_predictive_redundancy
from laaciq.profiling.results import Profile
from laaciq.quantization.dequantized import load_dequantized
from laaciq.report.profile_report import write_profile_report

# In the folder that `profile` or `run` wrote.
PROFILE = "profile.json"


def profile(
    model: str | Path = REFERENCE,
    *,
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    exposure: Mapping[str, int] | str | Path | None = None,
    predictive: bool = False,
    thresholds: ScreeningThresholds = ScreeningThresholds(),
    progress: Progress | None = None,
    **options: object,
) -> Profile:
    """Measure weights, activations, tokenization and alignment, on calibration text; options as in `MeasureOptions`.

    With `out`, a folder, the profile is written there with a report; the same call resumes, another one is refused unless `overwrite`.
    `predictive` adds predictive redundancy, which costs two more passes. `exposure` is the number of tokens seen in training by language, or
    a JSON file of that form; it is known for the reference model.
    """
    chosen = MeasureOptions.of(**options)
    named = None if languages is None else list(languages)
    folder = find_model(model)
    split = read_split(texts, seed=chosen.seed).select(named)
    tokens_seen = read_exposure(exposure) if exposure is not None else _known_exposure(folder)
    given = {
        "texts": None if texts == BUILTIN else texts,
        "languages": None if named is None else ",".join(named),
        "exposure": json.dumps(exposure) if isinstance(exposure, Mapping) else exposure,
        "predictive": predictive or None,
        **thresholds.model_dump(exclude_defaults=True),
        **chosen.model_dump(exclude_defaults=True),
    }
    store: Store = MemoryStore()
    if out is not None:
        store = RunFolder(Path(out), description={"command": _command(model, given)}, overwrite=overwrite)

    def compute() -> Profile:
        loaded = load_dequantized(folder, device=device)
        measured = profile_model(
            loaded,
            split.calibration,
            chosen,
            outlier_kurtosis=thresholds.outlier_kurtosis,
            exposure=tokens_seen,
            store=store,
            progress=progress,
        )
        return (
            with_predictive_redundancy(measured, loaded, split, chosen, progress=progress) if predictive else measured
        )

    read = (split.calibration.fingerprint, split.validation.fingerprint if predictive else None)
    measured_on = (folder.fingerprint, read, chosen.model_dump(), pick_device(device).type)
    key = key_of("profile", measured_on, thresholds.outlier_kurtosis, tokens_seen)
    result = store.result(PROFILE, Profile, key, compute)
    if out is not None:
        write_profile_report(result, screen_profile(result, bits=4, thresholds=thresholds), Path(out) / PROFILE)
    store.finish()
    return result


def _command(model: str | Path, given: Mapping[str, object]) -> str:
    """The command that does the same: the options that differ from their defaults."""
    words = ["laaciq", "profile", str(model)]
    for name, value in given.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return shlex.join(words)


def read_or_make(source: str | Path, **options: Any) -> Profile:
    """The profile in a file, or in a folder that `profile` or `run` wrote; of a model, made now."""
    path = Path(source)
    file = path / PROFILE if path.is_dir() else path
    return Profile.read(file) if file.suffix == ".json" and file.is_file() else profile(source, **options)


def read_exposure(source: Mapping[str, int] | str | Path) -> dict[str, int]:
    """Tokens by language code, from a mapping or a JSON file with codes or names."""
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
