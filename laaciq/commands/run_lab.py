"""`lab run`: every claim of the theory, tested on one or more models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Unpack

from laaciq.commands.profile import known_exposure
from laaciq.commands.settings import Settings, read_keywords, spells_out
from laaciq.corpus.used_languages import used_languages
from laaciq.engine.progress import default_progress
from laaciq.engine.recipe import RECIPE, recipe_of
from laaciq.engine.run_folder import RunFolder
from laaciq.engine.store import MemoryStore, Store
from laaciq.engine.workers import make_workers
from laaciq.errors import BadOption
from laaciq.lab.claim import Claim
from laaciq.lab.evidence import Evidence
from laaciq.lab.experiment import announce, answers, find_claims, gather
from laaciq.lab.measurements import Bench
from laaciq.lab.measurements.variants import variants_evidence, variants_file
from laaciq.lab.planted import OUTLIERS, planted_checkpoint, without_suffix
from laaciq.lab.verdicts import Answer, LabResult, verdict_rows
from laaciq.models import find_model
from laaciq.options import LabOptions
from laaciq.options.keywords import LabKeywords
from laaciq.report.lab_report import lab_html, lab_markdown
from laaciq.trials.session import Session


@spells_out(LabOptions, LabKeywords)
def run_lab(models: Iterable[str | Path], **keywords: Unpack[LabKeywords]) -> LabResult:
    """Test the claims of the theory on `models`: supported, refuted, undecided or not applicable.

    Keywords: `LabOptions` and `Settings`. `lab.json`, `report.md` and `report.html` are written to `out`.
    """
    names = (models,) if isinstance(models, str | Path) else tuple(models)
    options, settings = read_keywords(LabOptions, keywords, models=tuple(map(str, names)))
    claims = find_claims(options.claims)
    named = _named(options.models)
    files = {name: file for name, model in named.items() if (file := variants_file(model))}
    figures = {name: variants_evidence(name, file, claims) for name, file in files.items()}
    sessions = {name: _session(model, options, settings) for name, model in named.items() if name not in figures}
    if not sessions:
        raise BadOption("training variants alone have no texts to measure: give a model beside them, such as reference")
    by_claim: dict[str, dict[str, Answer]] = {claim.name: {} for claim in claims}
    languages: dict[str, list[str]] = {}
    first = next(iter(sessions.values()))
    store = _store(options, settings, first)
    try:
        for name in named:
            if name in figures:
                evidence, languages[name] = figures[name], figures[name]["variants"].languages
            else:
                evidence, languages[name] = _measure(sessions[name], store, name, named[name], options.quick, claims)
            for claim, answer in answers(claims, evidence).items():
                by_claim[claim][name] = answer
        result = LabResult(
            models=list(named),
            texts=first.split.test.name,
            quick=options.quick,
            languages=languages,
            rows=verdict_rows(claims, by_claim),
            command=options.command,
        )
        store.write("lab.json", result.model_dump_json(indent=1))
        store.write("report.md", lab_markdown(result))
        store.write("report.html", lab_html(result))
        store.finish()
    finally:
        store.close()
    return result


def _measure(
    session: Session, store: Store, name: str, model: str, quick: bool, claims: Sequence[Claim]
) -> tuple[Evidence, list[str]]:
    """The evidence of one model, and the languages that it is about."""
    with session.keeping_in(store, f"models/{name}"):
        # Planted outliers change nothing of what was seen in training.
        trained = find_model(without_suffix(model)) if model.endswith(OUTLIERS) else session.folder
        bench = Bench(session, quick, known_exposure(trained))
        announce(bench, claims)
        return gather(bench, claims), bench.measured


def _named(models: tuple[str, ...]) -> dict[str, str]:
    """Models by a short name, which is also that of their part of the results."""
    named: dict[str, str] = {}
    for model in models:
        short = Path(model).name or model
        number = sum(other.partition("#")[0] == short for other in named)
        named[f"{short}#{number + 1}" if number else short] = model
    return named


def _session(model: str, options: LabOptions, settings: Settings) -> Session:
    progress = settings.progress or default_progress()
    # With planted outliers a model serves the languages that it served without.
    languages = used_languages(options.languages, options.texts, find_model(without_suffix(model)).path)
    return Session.open(
        planted_checkpoint(model, progress) if model.endswith(OUTLIERS) else model,
        options.texts,
        options.measuring(),
        languages=languages,
        passages=options.passages,
        device=settings.device,
        progress=progress,
        workers=make_workers(settings.workers, settings.ray),
        limits=settings.limits,
        allow_left_alone=options.allow_left_alone,
    )


def _store(options: LabOptions, settings: Settings, first: Session) -> Store:
    if settings.out is None:
        return MemoryStore()
    folder = RunFolder(
        Path(settings.out),
        description={"command": options.command},
        overwrite=settings.overwrite,
        computed_with=first.computed_with,
    )
    folder.write(RECIPE, recipe_of(options))
    return folder
