"""`run`: profile, predict, plan, quantize, measure, evaluate, report; each stage once, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from laaciq.commands.opening import open_session
from laaciq.commands.profile import PROFILE, known_exposure
from laaciq.commands.run_and_baseline import (
    StoredArm,
    arms_of,
    checkpoint_folder,
    is_measured,
    round_ahead,
    served_texts,
    store_arm,
)
from laaciq.commands.settings import read_keywords, spells_out
from laaciq.corpus import Texts
from laaciq.corpus.identification import LanguageIdentifier
from laaciq.corpus.split import divide_calibration
from laaciq.engine.display import Displayed
from laaciq.evaluation import estimate
from laaciq.evaluation.continuations import GenerationResult, compare_continuations
from laaciq.evaluation.generation_trial import generate_continuations, generated, prompts_per_language
from laaciq.evaluation.numeric import NumericNoise, numeric_noise
from laaciq.evaluation.results import Evaluation
from laaciq.evaluation.spread import Spread, spread_of
from laaciq.evaluation.theory import TheoryFindings, theory_findings
from laaciq.evaluation.trial import evaluate_trial
from laaciq.options import REFERENCE, RunOptions
from laaciq.options.keywords import RunKeywords
from laaciq.planning.decision import Decision, calibrate, decide, decision_key, profiled_texts
from laaciq.planning.description import describe
from laaciq.planning.estimate import estimate_stages
from laaciq.planning.results import Planning
from laaciq.planning.screening import Screening, screen_profile
from laaciq.profiling.results import Profile
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.plan import Plan, PlanSet
from laaciq.report.figures import render
from laaciq.report.findings import Findings
from laaciq.report.html import html_report
from laaciq.report.markdown import markdown_report
from laaciq.report.theory_section import figure_title, relation_figure
from laaciq.strict import StrictModel
from laaciq.trials.candidate import Checkpoints
from laaciq.trials.estimate import StageCost
from laaciq.trials.measurement import Measurement
from laaciq.trials.session import Session

# Stages that workers take part in, if there are any.
_HANDED_OUT = ("loading", "baseline: rounding", "measuring")
# The profile that decides which languages are served, where a method needs no more.
_SERVED_PROFILE = "profiles/served.json"


class RunResult(Displayed, StrictModel):
    """The prediction of the theory (`screening`) and the measurement (`evaluation`).

    `plans` has one plan, or one per checkpoint. `planning` says how a planned one was chosen. `baseline` is the evaluation of GPTQ at the
    same size, calibrated on English. `theory` and `baseline_theory` are what the losses of both mean for the theory.
    `spread` (over draws of calibration text), `generation` and `numeric_noise` are None unless requested.
    `computed_with` names versions, the device and the type of numbers.
    """

    options: RunOptions
    screening: Screening
    plans: PlanSet
    evaluation: Evaluation
    baseline: Evaluation | None = None
    theory: TheoryFindings
    baseline_theory: TheoryFindings | None = None
    planning: Planning | None = None
    spread: Spread | None = None
    generation: list[GenerationResult] | None = None
    numeric_noise: NumericNoise | None = None
    computed_with: dict[str, str]

    @property
    def plan(self) -> Plan:
        """The plan, or the first one."""
        return self.plans.first


@spells_out(RunOptions, RunKeywords)
def run(model: str | Path = REFERENCE, **keywords: Unpack[RunKeywords]) -> RunResult:
    """Quantize `model` and measure what each language loses. Resumes in `out`.

    Keywords: `RunOptions` and `Settings`.
    """
    options, settings = read_keywords(RunOptions, keywords, model=model)
    if options.generate:
        LanguageIdentifier()  # if its library is missing, that is known before any work
    with open_session(options, replace(settings, out=settings.out or options.default_folder)) as session:
        chain = Chain(session, options)
        chain.announce()
        return chain.run()


@dataclass
class Chain:
    """The stages of a run."""

    session: Session
    options: RunOptions

    def run(self) -> RunResult:
        session, options = self.session, self.options
        profile = session.profile(session.split.calibration)
        screening = screen_profile(profile, bits=options.nominal_bits)
        decides = session.profile(self._profiled, name=self._deciding)
        calibration = Calibration(decides, session.split.calibration, session.options, session.split.validation)
        arms = arms_of(session, options, decides)
        # A worker rounds the baseline while this process plans.
        ahead = {arm.prefix: round_ahead(session, arm, calibration) for arm in arms[1:] if session.workers.apart}
        stored = [store_arm(session, arm, calibration, ahead.get(arm.prefix)) for arm in arms]
        main = stored[0]
        # Languages lack a checkpoint only with --separate, which has no baseline: all arms are measured on the same text.
        measured = session.measure([arm.candidate for arm in stored], main.test)
        evaluations = [self._evaluate(arm, trial) for arm, trial in zip(stored, measured, strict=True)]
        exposure = known_exposure(session.folder)
        theory = [theory_findings(evaluation, profile, exposure=exposure) for evaluation in evaluations]
        result = RunResult(
            options=options,
            screening=screening,
            plans=main.decision.plans,
            evaluation=evaluations[0],
            baseline=evaluations[1] if len(evaluations) > 1 else None,
            theory=theory[0],
            baseline_theory=theory[1] if len(theory) > 1 else None,
            planning=main.decision.planning,
            spread=self._spread(main, evaluations[0]) if options.draws > 1 else None,
            generation=self._generate(main) if options.generate else None,
            numeric_noise=numeric_noise(session, main.test) if options.numeric_check else None,
            computed_with=session.computed_with,
        )
        session.store.write("theory.json", result.theory.model_dump_json(indent=1))
        findings = _findings(result, profile, self._plots(result, profile))
        session.store.write("report.md", markdown_report(findings))
        session.store.write("report.html", html_report(findings))
        session.store.finish()
        return result

    @property
    def _profiled(self) -> Texts:
        """The text whose profile decides."""
        return profiled_texts(self.session.split, self.options.quantizing())

    @property
    def _deciding(self) -> str:
        """The file of that profile: that of all calibration text, or of a few passages."""
        return PROFILE if self._profiled is self.session.split.calibration else _SERVED_PROFILE

    def _plots(self, result: RunResult, profile: Profile) -> dict[str, str]:
        """Files of the figures that Markdown links to, by title."""
        files = {}
        for relation in result.theory.relations:
            if relation.r is not None:
                file = f"{relation.quantity}.svg"
                figure = relation_figure(relation.quantity, profile, result.evaluation)
                self.session.store.write(file, render(figure, "svg"))
                files[figure_title(relation)] = file
        return files

    def _evaluate(self, stored: StoredArm, measured: dict[str, Measurement]) -> Evaluation:
        evaluation = evaluate_trial(self.session, measured, stored.test, quantized=describe(stored.decision.plans))
        self.session.store.write(f"{stored.arm.prefix}evaluation.json", evaluation.model_dump_json(indent=1))
        return evaluation

    def _spread(self, stored: StoredArm, evaluation: Evaluation) -> Spread:
        """Decisions and checkpoints for other divisions of the calibration text, and the spread of their losses."""
        return spread_of([evaluation, *(self._drawn(stored, draw) for draw in range(1, self.options.draws))])

    def _drawn(self, stored: StoredArm, draw: int) -> Evaluation:
        split = self.session.split
        whole = split.calibration.joined(split.validation)
        session = self.session.on(
            divide_calibration(whole, split.test, seed=self.options.seed + draw), within=f"draws/{draw}"
        )
        calibration = calibrate(session, stored.arm.options)
        key = decision_key(session, stored.arm.options)

        session.progress.say(f"Draw {draw + 1} of {self.options.draws} of the calibration text.")
        plans = session.store.result(
            "plans.json", Decision, key, lambda: decide(session, stored.arm.options, calibration)
        ).plans
        root = checkpoint_folder(session, "checkpoint", key, plans, calibration)
        (measured,) = session.measure([Checkpoints("run", key, plans, root)], stored.test)
        return evaluate_trial(session, measured, stored.test, quantized=describe(plans))

    def _generate(self, stored: StoredArm) -> list[GenerationResult]:
        return compare_continuations(
            generate_continuations(self.session, stored.candidate, stored.test, prompts=self._prompts)
        )

    @property
    def _prompts(self) -> int:
        return prompts_per_language(self.session, self.options.prompts)

    def announce(self) -> None:
        """Print what will be done, the time and the memory it takes. Raises an error if memory does not suffice."""
        session, options, test = self.session, self.options, self.session.split.test
        passages = sum(map(len, test.by_language.values()))
        size = (
            f"{options.budget:g} bits per weight"
            if options.budget
            else f"{options.bits} bits, group size {options.group_size}"
        )
        sentence = (
            f"Quantizing {session.folder.name} ({options.method}, {size}) and measuring "
            f"{passages:,} passages in {len(test.languages)} languages ({test.name}); results go to {session.out}."
        )
        if self.up_to_date():
            session.progress.say(f"{sentence} Everything is up to date; nothing is computed again.")
        else:
            stages = self.stages()
            session.reserve_workers([stage for stage in stages if stage.name in _HANDED_OUT])
            session.announce(sentence, stages)

    def stages(self) -> list[StageCost]:
        """What every stage takes, estimated before the model is loaded."""
        costs, split, weights = self.session.costs, self.session.split, self.options.quantizing()
        stages = estimate_stages(costs, split, weights, baseline=self.options.baseline)
        if self._deciding != PROFILE:
            stages.insert(1, replace(costs.profiling(split.calibration), name="profiling all calibration text"))
        if self.options.draws > 1:
            again = estimate_stages(costs, split, weights)
            others = sum(stage.seconds for stage in again) * (self.options.draws - 1)
            stages.append(replace(again[-1], name="other draws", seconds=others))
        if self.options.generate:
            stages.append(estimate.generating(costs, split.test, prompts=self._prompts))
        if self.options.numeric_check:
            stages.append(estimate.numeric_check(costs, split.test))
        return stages

    def up_to_date(self) -> bool:
        """True if everything that the options request exists, for every arm."""
        session, store = self.session, self.session.store
        profiles = {PROFILE: session.split.calibration, self._deciding: self._profiled}
        if not all(store.valid(name, session.profile_key(texts)) for name, texts in profiles.items()):
            return False
        arms = arms_of(session, self.options, store.read(self._deciding, Profile))
        if not all(is_measured(session, arm) for arm in arms) or self.options.draws > 1:
            return False
        test = served_texts(session.split.test, store.read(arms[0].plans, Decision).plans)
        if self.options.generate and not generated(session, arms[0].key, test, prompts=self._prompts):
            return False
        return not self.options.numeric_check


def _findings(result: RunResult, profile: Profile, plots: Mapping[str, str]) -> Findings:
    return Findings(
        result.evaluation,
        result.options.command,
        plans=result.plans,
        computed_with=result.computed_with,
        profile=profile,
        baseline=result.baseline,
        planning=result.planning,
        spread=result.spread,
        theory=result.theory,
        baseline_theory=result.baseline_theory,
        generation=result.generation,
        plots=plots,
    )
