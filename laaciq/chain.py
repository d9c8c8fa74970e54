"""The whole chain: `run` plans, quantizes, evaluates and reports; `evaluate` measures a model that somebody else quantized."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

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
from laaciq.planning import Plan, uniform_plan
from laaciq.planning.screening import Screening, screen_profile
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.quantization import apply_checkpoint, find_method, write_checkpoint
from laaciq.quantization.checkpoint import is_checkpoint
from laaciq.report import html_report, markdown_report

# Passages a language that a run profiles for its prediction; `laaciq profile` reads them all.
PROFILED = 8


class RunResult(BaseModel):
    """What a run found: what the theory predicted (`screening`) beside what was measured (`evaluation`).

    `generation` and `numeric_noise` only where they were asked for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: RunOptions
    screening: Screening
    plan: Plan
    evaluation: Evaluation
    generation: list[GenerationResult] | None = None
    numeric_noise: NumericNoise | None = None


@dataclass
class _Pair:
    """The original and its quantized twin, loaded when first needed: a run that is up to date needs neither."""

    folder: ModelFolder
    checkpoint: Path
    device: str
    original_: LanguageModel | None = None
    quantized_: LanguageModel | None = None

    @property
    def original(self) -> LanguageModel:
        if self.original_ is None:
            self.original_ = load(self.folder, device=self.device)
        return self.original_

    @property
    def quantized(self) -> LanguageModel:
        if self.quantized_ is None:
            self.quantized_ = twin(self.original, self.checkpoint)
        return self.quantized_


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
    test = split.test
    model_key = folder.fingerprint
    pair = _Pair(folder, out / "checkpoint", device)
    store = RunFolder(out, description={"command": options.command})

    quantizing = options.model_dump(include={"method", "bits", "group_size", "symmetric"})
    plan_key = key_of("plan", model_key, quantizing)
    asked = options.measuring()
    keys = {
        code: key_of("measurement", plan_key, passages.texts, passages.documents, asked.model_dump(), place.type)
        for code, passages in test.by_language.items()
    }
    pending = [code for code, key in keys.items() if not store.valid(f"measurements/{code}.json", key)]
    _announce(options, folder, test, pending, out, place, progress)

    screening = _screening(pair, split.calibration, asked, options.bits, store, model_key, progress)
    plan = store.result("plan.json", Plan, plan_key, lambda: uniform_plan(pair.original.anatomy, **quantizing))
    if not store.valid("checkpoint", plan_key):
        with progress.stage("quantizing", len(plan.tensors)) as advance:
            write_checkpoint(pair.original, plan, pair.checkpoint, advance=lambda: advance(1))
        store.confirm("checkpoint", plan_key)

    with progress.stage("measuring", sum(len(test[code]) for code in pending)) as advance:

        def measured(code: str) -> Measurement:
            return measure(pair.original, pair.quantized, test[code], asked, advance=advance)

        measurements = [
            store.result(f"measurements/{code}.json", Measurement, key, partial(measured, code))
            for code, key in keys.items()
        ]
    evaluation = store.result(
        "evaluation.json",
        Evaluation,
        key_of("evaluation", keys, test.parallel, options.seed),
        lambda: evaluate_measurements(
            measurements,
            original=folder.name,
            quantized=describe(plan),
            texts=test.name,
            parallel=test.parallel,
            served_bound=options.served_bound,
            seed=options.seed,
        ),
    )
    generation = _generate(pair, test, store, keys, progress) if options.generate else None
    noise = _numeric_noise(pair, test, asked, store, keys, progress) if options.numeric_check else None
    result = RunResult(
        options=options,
        screening=screening,
        plan=plan,
        evaluation=evaluation,
        generation=generation,
        numeric_noise=noise,
    )
    write_text(out / "report.md", markdown_report(evaluation, plan, command=options.command))
    write_text(out / "report.html", html_report(evaluation, plan, command=options.command))
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
    if is_checkpoint(Path(checkpoint)):
        original = load(original_folder, device=device)
        quantized = twin(original, Path(checkpoint))
    else:
        folder = find_model(checkpoint)
        original, quantized = load(original_folder, device=device), load(folder, device=device)
        _require_same_tokens(original, quantized)
    with progress.stage("measuring", sum(map(len, test.by_language.values()))) as advance:
        measurements = [measure(original, quantized, p, asked, advance=advance) for p in test.by_language.values()]
    return evaluate_measurements(
        measurements,
        original=original_folder.name,
        quantized=str(checkpoint),
        texts=test.name,
        parallel=test.parallel,
        served_bound=asked.served_bound,
        seed=asked.seed,
    )


def twin(original: LanguageModel, checkpoint: Path) -> LanguageModel:
    """A copy of the original with the checkpoint's weights."""
    quantized = replace(original, module=copy.deepcopy(original.module))
    apply_checkpoint(quantized, checkpoint)
    return quantized


def describe(plan: Plan) -> str:
    first = plan.tensors[0]
    kind = "symmetric" if first.symmetric else "affine"
    return f"{plan.method}, {first.bits} bits, {kind}, group {first.group_size}, {plan.size.block_bits_per_weight:.2f} bits a weight"


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


def _screening(
    pair: _Pair,
    calibration: Texts,
    asked: MeasureOptions,
    bits: int,
    store: RunFolder,
    model_key: str,
    progress: Silence,
) -> Screening:
    """The prediction, from a profile on a few passages of calibration text: norms and kurtosis need no more."""
    few = replace(calibration, by_language={code: p.spread(PROFILED) for code, p in calibration.by_language.items()})
    key = key_of("profile", model_key, few.fingerprint, asked.model_dump(), OUTLIER_KURTOSIS)

    def compute() -> Profile:
        return profile_model(pair.original, few, asked, outlier_kurtosis=OUTLIER_KURTOSIS, progress=progress)

    return screen_profile(store.result("profile.json", Profile, key, compute), bits=bits)


def _generate(
    pair: _Pair, test: Texts, store: RunFolder, keys: dict[str, str], progress: Silence
) -> list[GenerationResult]:
    def continued(code: str) -> GenerationResult:
        return continue_prompts(pair.original, pair.quantized, test[code])

    results = []
    with progress.stage("generating", len(keys)) as advance:
        for code, measured_key in keys.items():
            key = key_of("generation", measured_key)
            results.append(store.result(f"generation/{code}.json", GenerationResult, key, partial(continued, code)))
            advance(1)
    return results


def _numeric_noise(
    pair: _Pair, test: Texts, asked: MeasureOptions, store: RunFolder, keys: dict[str, str], progress: Silence
) -> NumericNoise:
    def compute() -> NumericNoise:
        with progress.stage("numeric check", len(test.languages)) as advance:
            return numeric_noise(pair.original, test, asked, advance=advance)

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
