"""The decision how a model is stored: planned under a budget, by the rules of a method, or read from a file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from laaciq.corpus import Split, Texts
from laaciq.engine.input_files import Refusal, read_bytes
from laaciq.engine.json_input import read_record
from laaciq.engine.store import key_of
from laaciq.errors import BadOption
from laaciq.models import Anatomy
from laaciq.options import WeightOptions, find_method, reads_text
from laaciq.planning.results import Planning
from laaciq.planning.rules import make_plans, reads_profile
from laaciq.planning.search import search_plan
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.plan import Plan, PlanSet, count_size
from laaciq.strict import StrictModel
from laaciq.trials.session import Session

# Passages per language to profile if a method only needs to know which languages are served.
SERVED_PASSAGES = 4
PLAN_FILE = Refusal(BadOption, "give a file made by 'laaciq plan' for this model")


class Decision(StrictModel):
    """The plans and, for method 'planned', how they were chosen."""

    plans: PlanSet
    planning: Planning | None = None


def decide(session: Session, options: WeightOptions, calibration: Calibration | None) -> Decision:
    """The decision. Layers that planning has rounded for it are in the session's store."""
    model = session.original
    if options.plan is not None:
        plan = read_plan_file(Path(options.plan), model.anatomy, session.split.calibration.languages)
        return Decision(plans=PlanSet(plans={"": plan}))
    if find_method(options.method).planned and calibration is not None:
        planning = search_plan(session, calibration, options)
        return Decision(plans=PlanSet(plans={"": planning.plan}), planning=planning)
    profile = None if calibration is None else calibration.profile
    plans = make_plans(model.anatomy, options, profile, served_bound=session.options.served_bound)
    return Decision(plans=plans)


def calibrate(session: Session, options: WeightOptions, *, profile: str = "profile.json") -> Calibration | None:
    """The calibration data of the method; None if it reads neither texts nor a profile. `profile` is the name in the store."""
    if not needs_profile(options):
        return None
    texts = profiled_texts(session.split, options)
    return Calibration(
        session.profile(texts, name=profile), session.split.calibration, session.options, session.split.validation
    )


def profiled_texts(split: Split, options: WeightOptions) -> Texts:
    """The calibration text, or only a few passages if the profile only decides which languages are served."""
    return split.calibration if reads_profile(options) else split.calibration.spread(SERVED_PASSAGES)


def needs_profile(options: WeightOptions) -> bool:
    """True if the model must be profiled before plans are made."""
    return reads_text(options) or options.outlier_bits is not None


def decision_key(session: Session, options: WeightOptions) -> str:
    """The key of everything that decides the plans and their weights; known before anything is computed."""
    if not needs_profile(options):
        parts = (session.computed_with, session.folder.fingerprint, options.model_dump())
        return key_of("plans", *parts, plan_file_fingerprint(options.plan))
    texts = (session.split.calibration.fingerprint, session.split.validation.fingerprint)
    read = (session.folder.fingerprint, texts, session.options.model_dump(), session.computed_with)
    return key_of("plans", read, options.model_dump(), plan_file_fingerprint(options.plan))


def read_plan_file(path: Path, anatomy: Anatomy, languages: Sequence[str]) -> Plan:
    """The plan in a file, edited or not: its size is counted again, and its weights are scaled to sum to one. `languages` have text."""
    plan = read_record(path, Plan, PLAN_FILE)
    if unknown := [code for code in plan.languages if code not in languages]:
        raise BadOption(
            f"{path} has a weight for {unknown[0]}, which has no text here: give texts with it, or take it out of the plan"
        )
    _require_fit(plan, anatomy, path)
    total = sum(plan.weights.values())
    weights = {code: weight / total for code, weight in plan.weights.items()}
    return plan.model_copy(update={"size": count_size(plan.tensors, anatomy), "weights": weights})


def _require_fit(plan: Plan, anatomy: Anatomy, path: Path) -> None:
    """A plan says how each matrix of the blocks is stored, and perhaps each token matrix."""
    in_blocks = {linear.name: linear.shape for linear in anatomy.linears}
    tables = {matrix.name: matrix for matrix in anatomy.token_matrices}
    for tensor in plan.tensors:
        known = tables[tensor.name].shape if tensor.used_by and tensor.name in tables else None
        known = known if tensor.used_by else in_blocks.get(tensor.name)
        if known != tensor.shape:
            raise PLAN_FILE.of(path, f"is for another model: this one has no {tensor.name} of shape {tensor.shape}")
        if tensor.used_by and set(tensor.used_by) != set(tables[tensor.name].used_by):
            raise PLAN_FILE.of(path, f"does not say which modules use {tensor.name}")
        if tensor.used_by and tensor.quantized and (obstacle := tables[tensor.name].obstacle):
            raise PLAN_FILE.of(path, f"quantizes {tensor.name}, which cannot be ({obstacle})")
    if missing := in_blocks.keys() - {tensor.name for tensor in plan.tensors}:
        raise PLAN_FILE.of(path, f"says nothing of {min(missing)}; give it 16 bits to leave it as it is")
    if plan.reads_text and not plan.weights:
        raise PLAN_FILE.of(path, "has no weights of languages, and calibration text decides how it rounds")


def plan_file_fingerprint(plan: str | None) -> str | None:
    """Fingerprint of the plan file that an option names."""
    return None if plan is None else hashlib.sha256(read_bytes(Path(plan), PLAN_FILE)).hexdigest()
