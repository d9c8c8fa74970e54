"""`run`: the whole chain. Profile, predict, plan, quantize, measure, evaluate, report; each stage once, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Unpack

from pydantic import BaseModel, ConfigDict

from laaciq.commands.opening import open_session
from laaciq.commands.quantize import write_checkpoints
from laaciq.corpus import Texts
from laaciq.engine.display import Displayed
from laaciq.engine.progress import Progress
from laaciq.evaluation.generation import GenerationResult, continue_prompts
from laaciq.evaluation.numeric import NumericNoise, numeric_noise
from laaciq.evaluation.results import Evaluation
from laaciq.evaluation.trial import evaluate_trial
from laaciq.options import REFERENCE, RunOptions, WeightOptions
from laaciq.options.keywords import RunKeywords
from laaciq.planning.baseline import baseline_options
from laaciq.planning.decision import Decision, decide, decision_key, profiled_texts
from laaciq.planning.description import describe
from laaciq.planning.results import Planning
from laaciq.planning.screening import Screening, screen_profile
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.plan import Plan, PlanSet
from laaciq.report.html import html_report
from laaciq.report.markdown import markdown_report
from laaciq.trials.candidate import Checkpoints
from laaciq.trials.estimate import estimate, require_memory
from laaciq.trials.measurement import Measurement
from laaciq.trials.session import Session

# What leads the files of the two candidates of a run.
RUN, BASELINE = "", "baseline/"


class RunResult(Displayed, BaseModel):
    """What the theory predicted (`screening`) and what was measured (`evaluation`).

    `plans` has one plan, or one for every checkpoint. `planning` says how a planned one was found, and `baseline` what GPTQ of the same size,
    calibrated on English, costs. `generation` and `numeric_noise` are there where they were requested. `folder` holds everything.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    options: RunOptions
    folder: str
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


def run(
    model: str | Path = REFERENCE,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Unpack[RunKeywords],
) -> RunResult:
    """Quantize `model` and measure what each language loses; options as in `RunOptions`. Resumes whatever is in `out`."""
    chosen = RunOptions.of(model=model, **options)
    session = open_session(
        chosen, out=out or chosen.default_folder, overwrite=overwrite, device=device, progress=progress
    )  # fmt: skip
    chain = _Chain(session, chosen)
    chain.announce()
    return chain.run()


@dataclass
class _Arm:
    """One candidate of a run, stored: `prefix` leads its files. `test` holds the languages that some checkpoint of it serves."""

    prefix: str
    decision: Decision
    candidate: Checkpoints
    test: Texts


@dataclass
class _Chain:
    """The stages of a run."""

    session: Session
    options: RunOptions

    def run(self) -> RunResult:
        session, options = self.session, self.options
        quantizing = options.quantizing()
        profile = session.profile(profiled_texts(session.split, quantizing))
        screening = screen_profile(profile, bits=options.bits)
        calibration = Calibration(profile, session.split.calibration, session.options, session.split.validation)
        arms = [self._store(RUN, quantizing, calibration)]
        if (baseline := baseline_options(options, profile)) is not None:
            arms.append(self._store(BASELINE, baseline, calibration))
        # All arms serve all languages but where every language has a checkpoint of its own, and then there is no baseline.
        measured = session.measure([arm.candidate for arm in arms], arms[0].test)
        evaluations = [self._evaluate(arm, found) for arm, found in zip(arms, measured, strict=True)]
        arm = arms[0]
        result = RunResult(
            options=options,
            folder=str(session.out),
            screening=screening,
            plans=arm.decision.plans,
            evaluation=evaluations[0],
            baseline=evaluations[1] if len(evaluations) > 1 else None,
            planning=arm.decision.planning,
            generation=self._generate(arm) if options.generate else None,
            numeric_noise=numeric_noise(session, arm.test) if options.numeric_check else None,
        )
        drawn = partial(
            html_report, result.evaluation, result.plans,
            command=options.command, baseline=result.baseline, planning=result.planning, profile=profile,
        )  # fmt: skip
        written = partial(
            markdown_report, result.evaluation, result.plans,
            command=options.command, baseline=result.baseline, planning=result.planning,
        )  # fmt: skip
        session.store.write("report.md", written())
        session.store.write("report.html", drawn())
        session.store.finish()
        return result

    def _store(self, prefix: str, options: WeightOptions, calibration: Calibration) -> _Arm:
        """Decide how the model is stored, and write its checkpoints."""
        session = self.session
        key, rounded = decision_key(session, options), None

        def compute() -> Decision:
            nonlocal rounded
            decision, rounded = decide(session, options, calibration)
            return decision

        decision = session.store.result(f"{prefix}plans.json", Decision, key, compute)

        def fill(root: Path) -> None:
            write_checkpoints(session, decision.plans, root, calibration=calibration, rounded=rounded)

        root = session.store.folder(f"{prefix}checkpoint", key, fill)
        candidate = Checkpoints(_trial_name(prefix), key, decision.plans, root)
        return _Arm(prefix, decision, candidate, self._served(decision.plans))

    def _served(self, plans: PlanSet) -> Texts:
        """Test text of the languages that some checkpoint serves: where each has its own, those that the model does not serve have none."""
        test = self.session.split.test
        served = [code for code in test.languages if plans.serves(code)]
        if left_out := [code for code in test.languages if code not in served]:
            self.session.progress.say(f"Not served, so without a checkpoint of their own: {', '.join(left_out)}.")
        return test.select(served)

    def _evaluate(self, arm: _Arm, measured: dict[str, Measurement]) -> Evaluation:
        evaluation = evaluate_trial(self.session, measured, arm.test, quantized=describe(arm.decision.plans))
        self.session.store.write(f"{arm.prefix}evaluation.json", evaluation.model_dump_json(indent=1))
        return evaluation

    def _generate(self, arm: _Arm) -> list[GenerationResult]:
        session, results = self.session, []

        def continued(code: str) -> GenerationResult:
            with arm.candidate.applied(session.copy(), code) as quantized:
                return continue_prompts(session.original, quantized, arm.test[code])

        with session.progress.stage("generating", len(arm.test.languages)) as advance:
            for code, passages in arm.test.by_language.items():
                key = session.key(passages, "generation", arm.candidate.key)
                name = f"generation/{code}.json"
                results.append(session.store.result(name, GenerationResult, key, partial(continued, code)))
                advance(1)
        return results

    def announce(self) -> None:
        """What will be done, how long it takes, and how much memory; refuses where that is not there."""
        session, options, test = self.session, self.options, self.session.split.test
        passages = sum(map(len, test.by_language.values()))
        size = (
            f"{options.budget:g} bits per weight"
            if options.budget
            else f"{options.bits} bits, group size {options.group_size}"
        )
        session.progress.say(
            f"Quantizing {session.folder.name} ({options.method}, {size}) and measuring "
            f"{passages:,} passages in {len(test.languages)} languages ({test.name}); results go to {session.out}."
        )
        cost = estimate(session.folder, test, device=session.place)
        require_memory(cost, session.place)


def _trial_name(prefix: str) -> str:
    return prefix.strip("/") or "run"
