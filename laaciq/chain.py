"""The whole chain: `run` plans, quantizes, evaluates and reports; `evaluate` measures a model that somebody else quantized."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

from laaciq.compression import write_checkpoints
from laaciq.corpus import Texts, read_split
from laaciq.engine.estimate import estimate, require_memory
from laaciq.engine.files import write_text
from laaciq.engine.progress import Silence
from laaciq.engine.store import RunFolder, key_of
from laaciq.errors import BadOption
from laaciq.evaluation import Evaluation, Measurement, evaluate_measurements, measure
from laaciq.evaluation.generation import GenerationResult, continue_prompts
from laaciq.evaluation.numeric import NumericNoise, numeric_noise
from laaciq.models import LanguageModel, ModelFolder, find_model, load
from laaciq.models.loading import pick_device
from laaciq.options import BUILTIN, OUTLIER_KURTOSIS, REFERENCE, MeasureOptions, RunOptions
from laaciq.planning import Plan, PlanSet, find_method, make_plans
from laaciq.planning.screening import Screening, screen_profile
from laaciq.planning.strategy import reads_text
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.quantization import Calibration
from laaciq.quantization.switch import speaking
from laaciq.quantization.twins import Twins
from laaciq.report import html_report, markdown_report

# Passages a language that a run profiles for its prediction; `laaciq profile` reads them all.
PROFILED = 8


class RunResult(BaseModel):
    """What a run found: what the theory predicted (`screening`) beside what was measured (`evaluation`).

    `plans` has one plan, or one for every checkpoint. `generation` and `numeric_noise` only where they were asked for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: RunOptions
    screening: Screening
    plans: PlanSet
    evaluation: Evaluation
    generation: list[GenerationResult] | None = None
    numeric_noise: NumericNoise | None = None

    @property
    def plan(self) -> Plan:
        """The plan, or the first one."""
        return self.plans.first


@dataclass
class _Original:
    """Loaded when first needed: a run that is up to date does without."""

    folder: ModelFolder
    device: str

    @cached_property
    def model(self) -> LanguageModel:
        return load(self.folder, device=self.device)


def run(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    languages: Iterable[str] | None = None,
    device: str = "auto",
    progress: Silence | None = None,
    **options: object,
) -> RunResult:
    """Quantize `model` and measure what each language loses; options as in `RunOptions`. Resumes whatever is in `out`."""
    chosen = RunOptions.of(model=str(model), languages=None if languages is None else tuple(languages), **options)
    return run_chain(chosen, out=Path(out) if out else chosen.default_folder, device=device, progress=progress)


def run_chain(options: RunOptions, *, out: Path, device: str = "auto", progress: Silence | None = None) -> RunResult:
    progress = progress or Silence()
    find_method(options.method)
    place = pick_device(device)
    folder = find_model(options.model)
    languages = None if options.languages is None else list(options.languages)
    split = read_split(options.texts, seed=options.seed).select(languages)
    asked, quantizing = options.measuring(), options.quantizing()
    original = _Original(folder, device)
    store = RunFolder(out, description={"command": options.command})

    # Norms and kurtosis, for the prediction, need little text; what a method calibrates on is all that there is.
    calibration = split.calibration if reads_text(quantizing) else split.calibration.spread(PROFILED)
    profile_key = key_of("profile", folder.fingerprint, calibration.fingerprint, asked.model_dump(), OUTLIER_KURTOSIS)
    decided_by = profile_key if reads_text(quantizing) else folder.fingerprint
    plan_key = key_of("plans", decided_by, quantizing.model_dump())
    keys = {
        code: key_of("measurement", plan_key, passages.texts, passages.documents, asked.model_dump(), place.type)
        for code, passages in split.test.by_language.items()
    }
    pending = [code for code, key in keys.items() if not store.valid(f"measurements/{code}.json", key)]
    _announce(options, folder, split.test, pending, out, place, progress)

    profile = store.result(
        "profile.json",
        Profile,
        profile_key,
        lambda: profile_model(original.model, calibration, asked, outlier_kurtosis=OUTLIER_KURTOSIS, progress=progress),
    )
    plans = store.result(
        "plans.json",
        PlanSet,
        plan_key,
        lambda: make_plans(original.model.anatomy, quantizing, profile, served_bound=options.served_bound),
    )
    if not store.valid("checkpoint", plan_key):
        known = Calibration(profile, calibration, asked)
        write_checkpoints(original.model, plans, out / "checkpoint", calibration=known, progress=progress)
        store.confirm("checkpoint", plan_key)

    test = _with_checkpoint(split.test, plans, progress)
    twins = cache(lambda: Twins(original.model, plans, out / "checkpoint"))
    with progress.stage("measuring", sum(len(test[code]) for code in pending if code in test.languages)) as advance:

        def measured(code: str) -> Measurement:
            return measure(original.model, twins().speaking(code), test[code], asked, advance=advance)

        measurements = [
            store.result(f"measurements/{code}.json", Measurement, keys[code], partial(measured, code))
            for code in test.languages
        ]
    evaluation = store.result(
        "evaluation.json",
        Evaluation,
        key_of("evaluation", keys, test.parallel, options.seed),
        lambda: evaluate_measurements(
            measurements,
            original=folder.name,
            quantized=describe(plans),
            texts=test.name,
            parallel=test.parallel,
            served_bound=options.served_bound,
            seed=options.seed,
        ),
    )
    used = {code: keys[code] for code in test.languages}
    generation, noise = None, None
    if options.generate:
        generation = _generate(original, lambda code: twins().speaking(code), test, store, used, progress)
    if options.numeric_check:
        noise = _numeric_noise(original, test, asked, store, used, progress)
    result = RunResult(
        options=options,
        screening=screen_profile(profile, bits=options.bits),
        plans=plans,
        evaluation=evaluation,
        generation=generation,
        numeric_noise=noise,
    )
    write_text(out / "report.md", markdown_report(evaluation, plans, command=options.command))
    write_text(out / "report.html", html_report(evaluation, plans, profile=profile, command=options.command))
    return result


def evaluate(
    checkpoint: str | Path,
    *,
    against: str | Path,
    texts: str | Path = BUILTIN,
    languages: Iterable[str] | None = None,
    device: str = "auto",
    progress: Silence | None = None,
    **options: object,
) -> Evaluation:
    """What `checkpoint`, a quantized model made by anyone, loses in each language against its original; see `MeasureOptions`."""
    progress = progress or Silence()
    asked = MeasureOptions.of(**options)
    original_folder = find_model(against)
    test = read_split(texts, seed=asked.seed).select(None if languages is None else list(languages)).test
    require_memory(estimate(original_folder, test, device=pick_device(device)), pick_device(device))
    folder = find_model(checkpoint)
    original, quantized = load(original_folder, device=device), load(folder, device=device)
    _require_same_tokens(original, quantized)
    with progress.stage("measuring", sum(map(len, test.by_language.values()))) as advance:
        measurements = []
        for code, passages in test.by_language.items():
            with speaking(quantized, code):
                measurements.append(measure(original, quantized, passages, asked, advance=advance))
    return evaluate_measurements(
        measurements,
        original=original_folder.name,
        quantized=str(checkpoint),
        texts=test.name,
        parallel=test.parallel,
        served_bound=asked.served_bound,
        seed=asked.seed,
    )


def describe(plans: PlanSet) -> str:
    """In one line: what differs between tensors is told as a range."""
    plan = plans.first
    kind = "symmetric" if plan.tensors[0].symmetric else "affine"
    bits = sorted({tensor.bits for tensor in plan.in_blocks})
    extras = [f"{plan.tensors[0].keep:g} % kept"] if plan.tensors[0].keep else []
    extras += [f"rank {plan.tensors[0].rank}"] if plan.tensors[0].rank else []
    extras += [f"embeddings {plan.token_matrices[0].bits} bits"] if plan.token_matrices else []
    extras += [f"tuned for {plan.tuned} epochs"] if plan.tuned else []
    extras += [f"{len(plan.tables)} tables"] if plan.tables else []
    extras += [f"{len(plans.plans)} checkpoints"] if len(plans.plans) > 1 else []
    return ", ".join(
        [
            plan.method,
            f"{' and '.join(map(str, bits))} bits",
            kind,
            f"group {plan.tensors[0].group_size}",
            *extras,
            f"{plan.size.block_bits_per_weight:.2f} bits a weight",
        ]
    )


def _announce(
    options: RunOptions,
    folder: ModelFolder,
    test: Texts,
    pending: list[str],
    out: Path,
    place: torch.device,
    progress: Silence,
) -> None:
    passages = sum(map(len, test.by_language.values()))
    progress.say(
        f"Quantizing {folder.name} to {options.bits} bits ({options.method}, group size {options.group_size}) and measuring "
        f"{passages:,} passages in {len(test.languages)} languages ({test.name}); results go to {out}."
    )
    if not pending:
        progress.say("Everything is up to date; nothing is computed again.")
        return
    cost = estimate(folder, test.select(pending), device=place)
    require_memory(cost, place)
    done = len(test.languages) - len(pending)
    progress.say(f"This takes {cost}." + (f" {done} languages are measured already." if done else ""))


def _with_checkpoint(test: Texts, plans: PlanSet, progress: Silence) -> Texts:
    """The languages that some checkpoint serves: where each has its own, those that the model does not serve have none."""
    served = [code for code in test.languages if plans.serves(code)]
    if left_out := [code for code in test.languages if code not in served]:
        progress.say(f"Not served, so without a checkpoint of their own: {', '.join(left_out)}.")
    return test.select(served)


def _generate(
    original: _Original,
    quantized: Callable[[str], LanguageModel],
    test: Texts,
    store: RunFolder,
    keys: dict[str, str],
    progress: Silence,
) -> list[GenerationResult]:
    def continued(code: str) -> GenerationResult:
        return continue_prompts(original.model, quantized(code), test[code])

    results = []
    with progress.stage("generating", len(keys)) as advance:
        for code, measured_key in keys.items():
            key = key_of("generation", measured_key)
            results.append(store.result(f"generation/{code}.json", GenerationResult, key, partial(continued, code)))
            advance(1)
    return results


def _numeric_noise(
    original: _Original, test: Texts, asked: MeasureOptions, store: RunFolder, keys: dict[str, str], progress: Silence
) -> NumericNoise:
    def compute() -> NumericNoise:
        with progress.stage("numeric check", len(test.languages)) as advance:
            return numeric_noise(original.model, test, asked, advance=advance)

    return store.result("numeric_noise.json", NumericNoise, key_of("numeric noise", keys), compute)


def _require_same_tokens(original: LanguageModel, quantized: LanguageModel) -> None:
    probe = "Habari, 世界! नमस्ते 123"
    if original.kind != quantized.kind:
        raise BadOption(
            f"{quantized.folder.name} is {quantized.kind}, {original.folder.name} is {original.kind}: no pair"
        )
    ids = [m.tokenizer(probe, add_special_tokens=False)["input_ids"] for m in (original, quantized)]
    if ids[0] != ids[1]:
        raise BadOption(
            f"{quantized.folder.name} and {original.folder.name} have different tokenizers: they are no pair; "
            f"give the model that it was made from with --against"
        )
