"""`profile`: what is in the weights, and how each language uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from laaciq import reference
from laaciq.commands.opening import open_session
from laaciq.commands.settings import read_keywords, spells_out
from laaciq.corpus import language
from laaciq.engine.input_files import Refusal, is_folder, is_there
from laaciq.engine.json_input import read_object
from laaciq.engine.store import key_of
from laaciq.errors import BadOption
from laaciq.models import ModelFolder
from laaciq.options import REFERENCE, ProfileOptions
from laaciq.options.keywords import ProfileKeywords
from laaciq.planning.screening import ScreeningThresholds, screen_profile
from laaciq.profiling.profile import profile_model, with_predictive_redundancy
from laaciq.profiling.results import Profile
from laaciq.quantization.dequantized import load_dequantized
from laaciq.report.profile_report import write_profile_report

PROFILE = "profile.json"
EXPOSURE = "exposure.json"
_EXPOSURE = Refusal(BadOption, 'give a file with the tokens seen by language, such as {"eng": 1000}')


@spells_out(ProfileOptions, ProfileKeywords)
def profile(
    model: str | Path = REFERENCE,
    *,
    exposure: Mapping[str, int] | str | Path | None = None,
    **keywords: Unpack[ProfileKeywords],
) -> Profile:
    """Measure weights, activations, tokenization and alignment, on calibration text.

    Keywords: `ProfileOptions` and `Settings`. With `out`, a folder, the profile is written there with a report; the same call resumes, another
    one is refused unless `overwrite`. `exposure` is the number of tokens seen in training by language, or a JSON file of that form; it is
    known for the reference model.
    """
    file = exposure if isinstance(exposure, str | Path) else None
    chosen, settings = read_keywords(ProfileOptions, keywords, model=model, exposure=file)
    description: dict[str, object] = {"command": chosen.command}
    if isinstance(exposure, Mapping):
        description["exposure"] = dict(exposure)
    with open_session(chosen, settings, description=description) as session:
        calibration = session.split.calibration
        calibration = calibration if chosen.passages is None else calibration.spread(chosen.passages)
        tokens_seen = read_exposure(exposure) if exposure is not None else known_exposure(session.folder)

        def compute() -> Profile:
            loaded = session.loaded_by(load_dequantized)
            result = profile_model(
                loaded,
                calibration,
                session.options,
                outlier_kurtosis=chosen.outlier_kurtosis,
                exposure=tokens_seen,
                store=session.store,
                progress=session.progress,
            )
            if not chosen.predictive:
                return result
            split = replace(session.split, calibration=calibration)
            return with_predictive_redundancy(result, loaded, split, session.options, progress=session.progress)

        read = (calibration.fingerprint, session.split.validation.fingerprint if chosen.predictive else None)
        measured_on = (session.folder.fingerprint, read, session.options.model_dump(), session.computed_with)
        key = key_of("profile", measured_on, chosen.outlier_kurtosis, tokens_seen)
        result = session.store.result(PROFILE, Profile, key, compute)
        if settings.out is not None:
            thresholds = ScreeningThresholds.of(outlier_kurtosis=chosen.outlier_kurtosis)
            write_profile_report(result, screen_profile(result, bits=4, thresholds=thresholds), session.store)
        session.store.finish()
    return result


def read_or_make(source: str | Path, **options: Any) -> Profile:
    """The profile in a file, or in a folder that `profile` or `run` wrote; of a model, made now."""
    path = Path(source)
    if is_folder(path) and is_there(path / PROFILE):
        return Profile.read(path / PROFILE, within=path)
    return Profile.read(path) if path.suffix == ".json" else profile(source, **options)


def read_exposure(source: Mapping[str, int] | str | Path) -> dict[str, int]:
    """Tokens by language code, from a mapping or a JSON file with codes or names."""
    if isinstance(source, str | Path):
        source = read_object(Path(source), _EXPOSURE)
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in source.values()):
        raise BadOption("exposure must give a number of tokens for each language, such as {'eng': 1000, 'swa': 20}")
    return {language(name).code: count for name, count in source.items()}


def known_exposure(folder: ModelFolder) -> dict[str, int] | None:
    """Tokens seen in training by language: of the reference model, and of a model with `exposure.json`, which our recipes write beside it;
    None for others.
    """
    if folder.path == reference.path():
        return reference.exposure()
    return read_exposure(folder.path / EXPOSURE) if is_there(folder.path / EXPOSURE) else None
