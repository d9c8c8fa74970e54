"""What the reports of an evaluation are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from laaciq.evaluation.continuations import GenerationResult
from laaciq.evaluation.results import Evaluation
from laaciq.evaluation.spread import Spread
from laaciq.evaluation.theory import TheoryFindings
from laaciq.planning.results import Planning
from laaciq.profiling.results import Profile
from laaciq.quantization.plan import PlanSet


@dataclass(frozen=True)
class Findings:
    """An evaluation, and what else is known. `command` reproduces it, in an environment such as it was `computed_with`.

    A `profile` adds what is in the weights and how languages use them, a `baseline` its loss beside each language's, a `planning` how the
    plan was made, a `spread` what other draws of calibration text gave, `theory` and `baseline_theory` what the losses mean for the theory,
    `generation` what continuations look like.
    `plots` are files beside a report in Markdown, by the titles of their figures.
    """

    evaluation: Evaluation
    command: str
    plans: PlanSet | None = None
    computed_with: Mapping[str, str] | None = None
    profile: Profile | None = None
    baseline: Evaluation | None = None
    planning: Planning | None = None
    spread: Spread | None = None
    theory: TheoryFindings | None = None
    baseline_theory: TheoryFindings | None = None
    generation: Sequence[GenerationResult] | None = None
    plots: Mapping[str, str] = field(default_factory=dict)
