"""`evaluate`: a model that anyone quantized, against its original, by language."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import open_session
from laaciq.commands.settings import read_keywords, spells_out
from laaciq.errors import BadOption
from laaciq.evaluation.results import Evaluation
from laaciq.evaluation.trial import evaluate_trial
from laaciq.models import LanguageModel, find_model
from laaciq.models.loading import skeleton
from laaciq.options import EvaluateOptions
from laaciq.options.keywords import EvaluateKeywords
from laaciq.quantization.checkpoint import read_plan
from laaciq.quantization.plan import PlanSet
from laaciq.report.findings import Findings
from laaciq.report.html import html_report
from laaciq.report.markdown import markdown_report
from laaciq.trials.candidate import Candidate, Checkpoints, LoadedModel
from laaciq.trials.memory import PAIR


@spells_out(EvaluateOptions, EvaluateKeywords)
def evaluate(checkpoint: str | Path, *, against: str | Path, **keywords: Unpack[EvaluateKeywords]) -> Evaluation:
    """What `checkpoint`, a quantized model made by anyone, loses in each language against its original.

    Keywords: `EvaluateOptions` and `Settings`. With `out`, measurements are kept there, and `evaluation.json`, `report.html` and `report.md`
    are written.
    """
    chosen, settings = read_keywords(EvaluateOptions, keywords, checkpoint=checkpoint, against=against)
    folder = find_model(chosen.checkpoint)
    opened = open_session(chosen, settings)
    with opened if folder.is_ours else replace(opened, demand=PAIR) as session:
        test = session.split.test
        costs, beside = session.costs, None if folder.is_ours else folder
        session.announce(
            f"Measuring {checkpoint} against {session.folder.name} in {len(test.languages)} languages ({test.name}).",
            [costs.loading(), costs.loading(folder), costs.measuring(test, beside=beside)],
        )
        # Ours stays packed where memory does not suffice for several models.
        packed = folder.is_ours and session.placement.packed
        quantized = skeleton(folder) if packed else session.load_beside(folder)
        _require_same_tokens(session.original, quantized)
        name, key = "evaluated", folder.fingerprint
        candidate: Candidate
        if packed:
            candidate = Checkpoints(name, key, PlanSet(plans={"": read_plan(folder.path)}), folder.path.absolute())
        else:
            candidate = LoadedModel(name, key, quantized)
        (measured,) = session.measure([candidate], test)
        evaluation = evaluate_trial(session, measured, test, quantized=str(checkpoint))
        session.store.write("evaluation.json", evaluation.model_dump_json(indent=1))
        findings = Findings(evaluation, chosen.command, computed_with=session.computed_with)
        session.store.write("report.md", markdown_report(findings))
        session.store.write("report.html", html_report(findings))
        session.store.finish()
    return evaluation


def _require_same_tokens(original: LanguageModel, quantized: LanguageModel) -> None:
    probe = "Habari, 世界! नमस्ते 123"
    if original.kind != quantized.kind:
        raise BadOption(
            f"{quantized.folder.name} is {quantized.kind} and {original.folder.name} is {original.kind}: "
            "give the model that it was made from with --against"
        )
    ids = [model.tokenizer(probe, add_special_tokens=False)["input_ids"] for model in (original, quantized)]
    if ids[0] != ids[1]:
        raise BadOption(
            f"{quantized.folder.name} and {original.folder.name} have different tokenizers: "
            f"give the model that it was made from with --against"
        )
