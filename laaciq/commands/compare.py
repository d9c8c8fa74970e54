"""`compare`: methods side by side on one model. Each row is kept, so that other environments with other libraries add theirs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Unpack

from laaciq.commands.profile import known_exposure
from laaciq.commands.settings import read_keywords, spells_out
from laaciq.corpus import read_split
from laaciq.corpus.calibration_choice import calibration_split
from laaciq.corpus.used_languages import used_languages
from laaciq.engine.progress import default_progress
from laaciq.engine.recipe import recipe_of
from laaciq.engine.workers import make_workers
from laaciq.evaluation.theory import theory_findings
from laaciq.models import find_model
from laaciq.options import REFERENCE, CompareOptions
from laaciq.options.keywords import CompareKeywords
from laaciq.report.compare_report import compare_html
from laaciq.studies.compared_methods import conditions, find_compared_methods
from laaciq.studies.comparison import Comparison
from laaciq.studies.rows import Rows
from laaciq.trials.session import Session


@spells_out(CompareOptions, CompareKeywords)
def compare(model: str | Path = REFERENCE, **keywords: Unpack[CompareKeywords]) -> Comparison:
    """What each method costs each language of `model`, and at what size.

    Keywords: `CompareOptions` and `Settings`. Rows that are in `out` already stay, wherever they were computed; a row that failed is tried
    again. `compare.json` and `report.html` are written there.
    """
    chosen, settings = read_keywords(CompareOptions, keywords, model=model)
    compared = find_compared_methods(chosen.methods)
    chosen.refuse_unread(*conditions(compared))
    workers = make_workers(settings.workers, settings.ray)
    target = Path(settings.out) if settings.out else chosen.default_folder
    folder, whole = find_model(chosen.model), read_split(chosen.texts, seed=chosen.seed)
    test = whole.test.select(used_languages(chosen.languages, chosen.texts, folder.path))
    test = test if chosen.passages is None else test.spread(chosen.passages)
    # All calibration text of the languages that are measured, whatever methods are calibrated on.
    profiled = whole.calibration.select(test.languages)
    split = calibration_split(chosen.calibration, whole, test, seed=chosen.seed)
    if (most := chosen.calibration_passages) is not None:
        split = replace(split, calibration=split.calibration.spread(most), validation=split.validation.spread(most))
    # Rows of all comparisons of a model may share a folder: each is kept under its own key.
    session = Session(
        folder, split, chosen.measuring(), settings.progress or default_progress(), settings.device,
        target, {"command": CompareOptions(model=chosen.model).command}, settings.overwrite, recipe_of(chosen), workers,
        settings.limits,
        chosen.allow_left_alone,
    )  # fmt: skip
    with session:
        session.announce(
            f"Comparing {len(compared)} methods on {session.folder.name} at {chosen.bits} bits, calibrated on {chosen.calibration!r}; "
            f"results go to {target}. The time that libraries take to quantize is unknown and not included.",
            [
                session.costs.loading(),
                *[session.costs.measuring(test)] * len(compared),
                session.costs.profiling(profiled),
            ],
        )
        table = Rows(session, chosen.bits)
        rows = table.rows(compared)
        rows += table.others(target, rows)
        profile, exposure = session.profile(profiled, name="profiles/all.json"), known_exposure(session.folder)
        comparison = Comparison(
            model=session.folder.name,
            texts=test.name,
            bits=chosen.bits,
            calibration=chosen.calibration,
            passages=max(map(len, test.by_language.values())),
            languages=test.languages,
            rows=rows,
            theory={
                row.method: theory_findings(row.evaluation, profile, exposure=exposure)
                for row in rows
                if row.evaluation
            },
            command=chosen.command,
        )
        session.store.write("compare.json", comparison.model_dump_json(indent=1))
        session.store.write("report.html", compare_html(comparison, profile))
        session.store.finish()
    return comparison
