"""The whole chain: `run` plans, quantizes, evaluates and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

from laaciq.commands.plan import decide, needs_text, plan_fingerprint, profiled_texts
from laaciq.commands.quantize import write_checkpoints
from laaciq.corpus import Split, Texts, read_split
from laaciq.engine.files import write_text
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder, key_of
from laaciq.evaluation import Evaluation, Measurement, evaluate_measurements
from laaciq.evaluation.generation import GenerationResult, continue_prompts
from laaciq.evaluation.numeric import NumericNoise, numeric_noise
from laaciq.models import LanguageModel, ModelFolder, find_model, load
from laaciq.models.loading import pick_device
from laaciq.options import (
    OUTLIER_KURTOSIS,
    REFERENCE,
    MeasureOptions,
    QuantizeOptions,
    RunOptions,
)
from laaciq.planning.baseline import baseline_options
from laaciq.planning.description import describe
from laaciq.planning.methods import find_method
from laaciq.planning.results import Planning
from laaciq.planning.screening import Screening, screen_profile
from laaciq.profiling.profile import profile_model
from laaciq.profiling.results import Profile
from laaciq.quantization import Calibration
from laaciq.quantization.plan import Plan, PlanSet
from laaciq.report.html import html_report
from laaciq.report.markdown import markdown_report
from laaciq.trials.estimate import estimate, require_memory
from laaciq.trials.measurement import measure_each
from laaciq.trials.quantized_copy import Twins

# Where what is measured of today's default lies in a run's folder.
BASELINE = "baseline/"


class RunResult(BaseModel):
    """What a run found: what the theory predicted (`screening`) beside what was measured (`evaluation`).

    `plans` has one plan, or one for every checkpoint; `planning` is how it was found, where it was planned, and `baseline` what today's
    default of that size costs. `generation` and `numeric_noise` only where they were asked for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: RunOptions
    screening: Screening
    plans: PlanSet
    evaluation: Evaluation
    baseline: Evaluation | None = None
    planning: Planning | None = None
    generation: list[GenerationResult] | None = None
    numeric_noise: NumericNoise | None = None

    @property
    def plan(self) -> Plan:
        """The plan, or the first one."""
        return self.plans.first


class Decided(BaseModel):
    """Plans, and how they were found."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    plans: PlanSet
    planning: Planning | None


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
    progress: Progress | None = None,
    **options: object,
) -> RunResult:
    """Quantize `model` and measure what each language loses; options as in `RunOptions`. Resumes whatever is in `out`."""
    chosen = RunOptions.of(model=str(model), languages=None if languages is None else tuple(languages), **options)
    return run_chain(chosen, out=Path(out) if out else chosen.default_folder, device=device, progress=progress)


def run_chain(options: RunOptions, *, out: Path, device: str = "auto", progress: Progress | None = None) -> RunResult:
    progress = progress or Progress()
    find_method(options.method)
    place = pick_device(device)
    folder = find_model(options.model)
    languages = None if options.languages is None else list(options.languages)
    split = read_split(options.texts, seed=options.seed).select(languages)
    if options.passages is not None:
        split = replace(split, test=split.test.spread(options.passages))
    asked, quantizing = options.measuring(), options.quantizing()
    store = RunFolder(out, description={"command": options.command})
    profiled = profiled_texts(split, quantizing)
    profile_key = key_of("profile", folder.fingerprint, profiled.fingerprint, asked.model_dump(), OUTLIER_KURTOSIS)
    chain = _Chain(options, split, _Original(folder, device), store, progress, place, profile_key)
    _announce(options, folder, split.test, chain.pending("", chain.keys(quantizing)), out, place, progress)

    profile = store.result(
        "profile.json",
        Profile,
        profile_key,
        lambda: profile_model(
            chain.original.model, profiled, asked, outlier_kurtosis=OUTLIER_KURTOSIS, progress=progress
        ),
    )
    chain.calibration = Calibration(profile, split.calibration, asked, split.validation)
    arms = [chain.arm("", quantizing)]
    if (usual := baseline_options(options, profile)) is not None:
        arms.append(chain.arm(BASELINE, usual))
    chain.measure(arms)
    evaluation, *others = (chain.evaluation(arm) for arm in arms)
    baseline = others[0] if others else None
    plans, planning = arms[0].plans, arms[0].planning
    generation, noise = None, None
    keys = arms[0].keys
    test = arms[0].test
    used = {code: keys[code] for code in test.languages}
    if options.generate:
        generation = _generate(
            chain.original, lambda code: arms[0].twins().for_language(code), test, store, used, progress
        )
    if options.numeric_check:
        noise = _numeric_noise(chain.original, test, asked, store, used, progress)
    result = RunResult(
        options=options,
        screening=screen_profile(profile, bits=options.bits),
        plans=plans,
        evaluation=evaluation,
        baseline=baseline,
        planning=planning,
        generation=generation,
        numeric_noise=noise,
    )
    shown = partial(markdown_report, evaluation, plans, command=options.command, baseline=baseline, planning=planning)
    write_text(out / "report.md", shown())
    drawn = partial(html_report, evaluation, plans, command=options.command, baseline=baseline, planning=planning)
    write_text(out / "report.html", drawn(profile=profile))
    return result


@dataclass
class _Arm:
    """One way to quantize: its plans, the checkpoints that were written, and the keys of its measurements by language. `name` leads all its
    files."""

    name: str
    plans: PlanSet
    planning: Planning | None
    keys: dict[str, str]
    twins: Callable[[], Twins]
    test: Texts


@dataclass
class _Chain:
    """What all arms share: the original, the texts, and the folder where each result is found again."""

    options: RunOptions
    split: Split
    original: _Original
    store: RunFolder
    progress: Progress
    place: torch.device
    profile_key: str
    calibration: Calibration | None = None

    def plan_key(self, quantizing: QuantizeOptions) -> str:
        if not needs_text(quantizing):
            return key_of("plans", self.original.folder.fingerprint, quantizing.model_dump())
        read = (self.profile_key, self.split.calibration.fingerprint, self.split.validation.fingerprint)
        return key_of("plans", read, quantizing.model_dump(), plan_fingerprint(quantizing))

    def keys(self, quantizing: QuantizeOptions) -> dict[str, str]:
        """Of the measurement of every language."""
        decided = (self.plan_key(quantizing), self.options.measuring().model_dump(), self.place.type)
        return {
            code: key_of("measurement", decided, passages.texts, passages.documents)
            for code, passages in self.split.test.by_language.items()
        }

    def pending(self, arm: str, keys: dict[str, str]) -> list[str]:
        return [code for code, key in keys.items() if not self.store.valid(_measured(arm, code), key)]

    def arm(self, name: str, quantizing: QuantizeOptions) -> _Arm:
        """Decide how to store the model, and write it."""
        key = self.plan_key(quantizing)
        decided = self.store.result(f"{name}plans.json", Decided, key, lambda: self._decide(quantizing))
        plans, checkpoint = decided.plans, self.store.path / f"{name}checkpoint"
        if not self.store.valid(f"{name}checkpoint", key):
            write_checkpoints(
                self.original.model, plans, checkpoint, calibration=self.calibration, progress=self.progress
            )
            self.store.confirm(f"{name}checkpoint", key)
        test = _with_checkpoint(self.split.test, plans, self.progress)
        # Made when first needed: a run that is up to date loads no model.
        twins = cache(lambda: Twins(self.original.model, plans, checkpoint))
        return _Arm(name, plans, decided.planning, self.keys(quantizing), twins, test)

    def measure(self, arms: list[_Arm]) -> None:
        """Language by language, all arms that lack it beside one pass of the original."""
        lacking = {code: [arm for arm in arms if code in self._lacks(arm)] for code in self.split.test.languages}
        total = sum(len(self.split.test[code]) for code, own in lacking.items() if own)
        with self.progress.stage("measuring", total) as advance:
            for code, own in lacking.items():
                if not own:
                    continue
                twins = [arm.twins().for_language(code) for arm in own]
                asked = self.options.measuring()
                found = measure_each(self.original.model, twins, self.split.test[code], asked, advance=advance)
                for arm, measurement in zip(own, found, strict=True):
                    self.store.keep(_measured(arm.name, code), measurement, arm.keys[code])

    def _lacks(self, arm: _Arm) -> list[str]:
        return [code for code in self.pending(arm.name, arm.keys) if code in arm.test.languages]

    def evaluation(self, arm: _Arm) -> Evaluation:
        test, options = arm.test, self.options

        def compute() -> Evaluation:
            return evaluate_measurements(
                [self.store.read(_measured(arm.name, code), Measurement) for code in test.languages],
                original=self.original.folder.name,
                quantized=describe(arm.plans),
                texts=test.name,
                parallel=test.parallel,
                served_bound=options.served_bound,
                seed=options.seed,
            )

        key = key_of("evaluation", arm.keys, test.parallel, options.seed)
        return self.store.result(f"{arm.name}evaluation.json", Evaluation, key, compute)

    def _decide(self, quantizing: QuantizeOptions) -> Decided:
        plans, planning = decide(
            self.original.model,
            quantizing,
            self.calibration,
            served_bound=self.options.served_bound,
            store=self.store,
            progress=self.progress,
        )
        return Decided(plans=plans, planning=planning)


def _measured(arm: str, code: str) -> str:
    """Where a language's measurement lies."""
    return f"{arm}measurements/{code}.json"


def _announce(
    options: RunOptions,
    folder: ModelFolder,
    test: Texts,
    pending: list[str],
    out: Path,
    place: torch.device,
    progress: Progress,
) -> None:
    passages = sum(map(len, test.by_language.values()))
    size = (
        f"{options.budget:g} bits a weight"
        if options.budget
        else f"{options.bits} bits, group size {options.group_size}"
    )
    progress.say(
        f"Quantizing {folder.name} ({options.method}, {size}) and measuring "
        f"{passages:,} passages in {len(test.languages)} languages ({test.name}); results go to {out}."
    )
    if not pending:
        progress.say("Everything is up to date; nothing is computed again.")
        return
    cost = estimate(folder, test.select(pending), device=place)
    require_memory(cost, place)
    done = len(test.languages) - len(pending)
    before = " Planning comes before." if find_method(options.method).planned else ""
    progress.say(f"Measuring takes {cost}.{before}" + (f" {done} languages are measured already." if done else ""))


def _with_checkpoint(test: Texts, plans: PlanSet, progress: Progress) -> Texts:
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
    progress: Progress,
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
    original: _Original, test: Texts, asked: MeasureOptions, store: RunFolder, keys: dict[str, str], progress: Progress
) -> NumericNoise:
    def compute() -> NumericNoise:
        with progress.stage("numeric check", len(test.languages)) as advance:
            return numeric_noise(original.model, test, asked, advance=advance)

    return store.result("numeric_noise.json", NumericNoise, key_of("numeric noise", keys), compute)
