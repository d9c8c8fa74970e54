"""`plan`: how each tensor of a model is to be stored. Planned for the worst-off language, by the rule of a method, or read from a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from laaciq.corpus import Split, Texts, read_split
from laaciq.engine.files import require_free_file, write_text
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder
from laaciq.errors import BadOption
from laaciq.models import Anatomy, LanguageModel, find_model, load
from laaciq.options import BUILTIN, OUTLIER_KURTOSIS, REFERENCE, CheckpointOptions, QuantizeOptions
from laaciq.planning.methods import find_method
from laaciq.planning.planner import plan_model
from laaciq.planning.results import Planning
from laaciq.planning.rules import make_plans, reads_profile, reads_text
from laaciq.profiling.profile import profile_model
from laaciq.quantization import Calibration
from laaciq.quantization.plan import Plan, PlanSet, count_size

# Passages a language that are profiled where a method reads no more of the profile than who is served, and how loud.
PROFILED = 4

_RULES = ("keep", "protect", "outlier_bits", "attention_bits", "embedding_bits", "rank", "separate")


def plan(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    **options: object,
) -> Planning:
    """Plan the storage of every tensor under a budget; options as in `CheckpointOptions`. With `out` the plan is written there, to be edited
    or given to `quantize` and `run`; a file that is there is replaced only with `overwrite`. What was computed on the way stays beside it, and
    is not computed again."""
    progress = progress or Progress()
    chosen = CheckpointOptions.of(**{"method": "planned", **options})
    if not find_method(chosen.method).planned:
        raise BadOption(f"method {chosen.method!r} plans nothing: leave --method out, or use 'laaciq quantize'")
    file = None if out is None else Path(out)
    if file is not None:
        require_free_file(file, overwrite=overwrite)
    folder = find_model(model)
    split = read_split(texts, seed=chosen.seed).select(None if languages is None else list(languages))
    loaded = load(folder, device=device)
    _refuse_rules(chosen)
    known = calibrate(loaded, split, chosen, progress)
    store = None
    if file is not None:
        store = RunFolder(file.with_name(f"{file.name}.parts"), description={"plan": file.name})
    found = plan_model(
        loaded, known, chosen.quantizing(),
        served_bound=chosen.served_bound, store=store, progress=progress,
    )  # fmt: skip
    if file is not None:
        write_text(file, found.plan.model_dump_json(indent=1))
    return found


def calibrate(model: LanguageModel, split: Split, options: CheckpointOptions, progress: Progress) -> Calibration:
    """Calibration and validation text, and a profile of as much of the former as the method needs."""
    profiled = profiled_texts(split, options)
    profile = profile_model(model, profiled, options.measuring(), outlier_kurtosis=OUTLIER_KURTOSIS, progress=progress)
    return Calibration(profile, split.calibration, options.measuring(), split.validation)


def profiled_texts(split: Split, options: QuantizeOptions) -> Texts:
    return split.calibration if reads_profile(options) else split.calibration.spread(PROFILED)


def decide(
    model: LanguageModel,
    options: QuantizeOptions,
    calibration: Calibration | None,
    *,
    served_bound: float,
    store: RunFolder | None = None,
    progress: Progress | None = None,
) -> tuple[PlanSet, Planning | None]:
    """The plans, and how they were found where they were planned."""
    if options.plan is not None:
        return PlanSet(plans={"": read_plan_file(Path(options.plan), model.anatomy)}), None
    if find_method(options.method).planned and calibration is not None:
        _refuse_rules(options)
        found = plan_model(model, calibration, options, served_bound=served_bound, store=store, progress=progress)
        return PlanSet(plans={"": found.plan}), found
    profile = None if calibration is None else calibration.profile
    return make_plans(model.anatomy, options, profile, served_bound=served_bound), None


def _refuse_rules(options: QuantizeOptions) -> None:
    """A planned method decides for itself what the rules of other methods would."""
    for name in _RULES:
        if getattr(options, name) != QuantizeOptions.model_fields[name].default:
            word = f"--{name.replace('_', '-')}"
            raise BadOption(
                f"{word} is a rule, and method {options.method!r} plans: leave it out, or give --method gptq"
            )


def needs_text(options: QuantizeOptions) -> bool:
    """Must the model be profiled before it is planned?"""
    return options.plan is not None or reads_text(options) or options.outlier_bits is not None


def read_plan_file(path: Path, anatomy: Anatomy) -> Plan:
    """A plan, perhaps edited by hand: its size is counted again."""
    try:
        found = Plan.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadOption(
            f"the plan {path} cannot be read ({error.strerror}): give a file made by 'laaciq plan'"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BadOption(f"the plan {path} is not valid at {place or 'its start'}: {first['msg']}") from None
    return found.model_copy(update={"size": count_size(found.tensors, anatomy)})


def plan_fingerprint(options: QuantizeOptions) -> str | None:
    """Of the file that the options name: another text is another plan."""
    if options.plan is None:
        return None
    path = Path(options.plan)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
