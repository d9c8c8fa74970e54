"""`lab run`: every claim of the theory, tested on one or more models."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

from laaciq.commands.profile import known_exposure
from laaciq.commands.settings import Settings, read_keywords, spells_out
from laaciq.engine.progress import default_progress
from laaciq.engine.recipe import RECIPE, recipe_of
from laaciq.engine.store import MemoryStore, RunFolder, Store
from laaciq.engine.workers import make_workers
from laaciq.lab.experiment import announce, answers, find_claims, gather
from laaciq.lab.measurements import Bench
from laaciq.lab.verdicts import Answer, LabResult, verdict_rows
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
    sessions = {name: _session(model, options, settings) for name, model in _named(options.models).items()}
    by_claim: dict[str, dict[str, Answer]] = {claim.name: {} for claim in claims}
    languages: dict[str, list[str]] = {}
    store = _store(options, settings, next(iter(sessions.values())))
    try:
        for name, session in sessions.items():
            with session.keeping_in(store, f"models/{name}"):
                bench = Bench(session, options.quick, known_exposure(session.folder))
                announce(bench, claims)
                evidence = gather(bench, claims)
                languages[name] = bench.served
                for claim, answer in answers(claims, evidence).items():
                    by_claim[claim][name] = answer
        result = LabResult(
            models=list(sessions),
            texts=next(iter(sessions.values())).split.test.name,
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


def _named(models: tuple[str, ...]) -> dict[str, str]:
    """Models by a short name, which is also that of their part of the results."""
    named: dict[str, str] = {}
    for model in models:
        short = Path(model).name or model
        number = sum(other.partition("#")[0] == short for other in named)
        named[f"{short}#{number + 1}" if number else short] = model
    return named


def _session(model: str, options: LabOptions, settings: Settings) -> Session:
    return Session.open(
        model,
        options.texts,
        options.measuring(),
        languages=options.languages,
        passages=options.passages,
        device=settings.device,
        progress=settings.progress or default_progress(),
        workers=make_workers(settings.workers, settings.ray),
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
