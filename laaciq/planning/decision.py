"""The decision how a model is stored: planned under a budget, by the rules of a method, or read from a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from laaciq.corpus import Split, Texts
from laaciq.engine.store import key_of
from laaciq.errors import BadOption
from laaciq.models import Anatomy
from laaciq.options import WeightOptions, find_method, reads_text
from laaciq.planning.results import Planning
from laaciq.planning.rules import make_plans, reads_profile
from laaciq.planning.search import search_plan
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.grid import Layers
from laaciq.quantization.plan import Plan, PlanSet, count_size
from laaciq.strict import StrictModel
from laaciq.trials.session import Session

# Passages per language to profile if a method only needs to know which languages are served.
SERVED_PASSAGES = 4


class Decision(StrictModel):
    """The plans and, for method 'planned', how they were chosen."""

    plans: PlanSet
    planning: Planning | None = None


def decide(session: Session, options: WeightOptions, calibration: Calibration | None) -> tuple[Decision, Layers | None]:
    """The decision, and the layers that planning has already rounded, if any."""
    model = session.original
    if options.plan is not None:
        return Decision(plans=PlanSet(plans={"": read_plan_file(Path(options.plan), model.anatomy)})), None
    if find_method(options.method).planned and calibration is not None:
        planning, layers = search_plan(session, calibration, options)
        return Decision(plans=PlanSet(plans={"": planning.plan}), planning=planning), layers
    profile = None if calibration is None else calibration.profile
    plans = make_plans(model.anatomy, options, profile, served_bound=session.options.served_bound)
    return Decision(plans=plans), None


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
        return key_of("plans", session.computed_with, session.folder.fingerprint, options.model_dump())
    texts = (session.split.calibration.fingerprint, session.split.validation.fingerprint)
    read = (session.folder.fingerprint, texts, session.options.model_dump(), session.computed_with)
    return key_of("plans", read, options.model_dump(), plan_file_fingerprint(options))


def read_plan_file(path: Path, anatomy: Anatomy) -> Plan:
    """The plan in a file, edited or not; its size is counted again."""
    try:
        plan = Plan.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadOption(
            f"the plan {path} cannot be read ({error.strerror}): give a file made by 'laaciq plan'"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BadOption(f"the plan {path} is not valid at {place or 'its start'}: {first['msg']}") from None
    return plan.model_copy(update={"size": count_size(plan.tensors, anatomy)})


def plan_file_fingerprint(options: WeightOptions) -> str | None:
    """Fingerprint of the plan file that the options name."""
    if options.plan is None:
        return None
    path = Path(options.plan)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
