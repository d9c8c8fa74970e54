"""The steps of planning: predict the cost of every format for every language, allocate bits, quantize a plan and measure it.

Planning reads calibration and validation text, never test text. Slow results are kept in the session's store.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil

import numpy as np

from laaciq.corpus import Texts
from laaciq.engine.store import key_of
from laaciq.options import Effort, WeightOptions
from laaciq.planning.budget import Budget, size_budget, user_weights
from laaciq.planning.curvature import measure_curvature
from laaciq.planning.milp import GAP, SECONDS, Allocation, allocate
from laaciq.planning.results import PlanLosses, PredictedLosses, Probe
from laaciq.planning.rules import equal_weights
from laaciq.planning.search_space import SearchSpace, make_search_space, second_order_gain
from laaciq.planning.tensor_groups import base_plans, make_tensor_groups
from laaciq.quantization.blockwise import BlockStream
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.hessian import Hessian
from laaciq.quantization.model import Quantized
from laaciq.quantization.plan import Plan, TensorPlan, count_size
from laaciq.trials.candidate import InMemory
from laaciq.trials.session import Session


@dataclass(frozen=True)
class EffortPreset:
    """Passages for curvature and for validation, over all languages; calibration tokens per input of the widest layer; number of random
    plans to measure; minimax rounds; epochs of tuning; whether to compute the Pareto front.
    """

    curvature: int
    validation: int
    tokens: int
    probes: int
    rounds: int
    tuned: int
    front: bool


EFFORT_PRESETS: dict[Effort, EffortPreset] = {
    "fast": EffortPreset(curvature=32, validation=128, tokens=10, probes=0, rounds=1, tuned=2, front=False),
    "full": EffortPreset(curvature=256, validation=2000, tokens=160, probes=12, rounds=6, tuned=6, front=True),
}


@dataclass(frozen=True)
class MeasuredPlan:
    plan: Plan
    losses: PlanLosses


@dataclass
class Planner:
    """`calibration` and `validation` hold only the languages that decide."""

    session: Session
    calibration: Calibration
    validation: Texts
    options: WeightOptions
    timed_out: bool = field(default=False, init=False)

    @property
    def languages(self) -> list[str]:
        return self.validation.languages

    @property
    def preset(self) -> EffortPreset:
        return EFFORT_PRESETS[self.options.effort]

    @cached_property
    def tensors(self) -> list[TensorPlan]:
        whole = self.options.budget_for == "model"
        return base_plans(self.session.original.anatomy, symmetric=False, token_matrices=whole)

    @cached_property
    def budget(self) -> Budget:
        return size_budget(self.session.original.anatomy, self.options, self.tensors)

    @cached_property
    def user_weights(self) -> np.ndarray | None:
        return user_weights(self.options.language_weight, self.languages)

    @cached_property
    def _text_key(self) -> str:
        texts = (self.calibration.texts.fingerprint, self.validation.fingerprint)
        session = self.session
        read = (session.folder.fingerprint, texts, session.options.model_dump(), session.computed_with)
        return key_of(read, self.options.effort)

    def share(self, passages: int) -> int:
        """Passages per language, given a number of passages over all languages."""
        return -(-passages // len(self.languages))

    @cached_property
    def calibration_passages(self) -> int:
        """Calibration passages per language. With fewer tokens than inputs, second moments are unknown in most directions; an expert reads a
        share of them.
        """
        model = self.session.original
        widest = max(linear.shape[1] / linear.share for linear in model.anatomy.linears)
        sample = [text for passages in self.calibration.texts.spread(4).by_language.values() for text in passages.texts]
        tokens = sum(map(len, model.tokenizer(sample, add_special_tokens=False)["input_ids"])) / len(sample)
        return self.share(ceil(self.preset.tokens * widest / max(tokens, 1)))

    def search_space(self) -> SearchSpace:
        """Every format of every tensor group with its predicted losses, not yet scaled by measurements."""
        groups = make_tensor_groups(self.tensors, self.options.effort, self.options.runtime)
        # Before anything is measured: a budget that allows no plan is refused at once.
        self.budget.require(int(sum(group.sizes.min() for group in groups)))
        formats = [[plan.model_dump() for plan in plans] for group in groups for plans in group.choices]
        key = key_of("predicted losses", self._text_key, formats)

        def compute() -> PredictedLosses:
            model, progress = self.session.original, self.session.progress
            sample = self.calibration.texts.spread(self.share(self.preset.curvature))
            names = {tensor.name for tensor in self.tensors}
            with progress.stage("curvature", sum(map(len, sample.by_language.values()))) as advance:
                curvature = measure_curvature(model, names, sample, self.session.options, advance=advance)
            gains = self._gains()
            with progress.stage("predicting losses", len(groups)) as advance:
                space = make_search_space(groups, model, curvature, gains, advance=advance)
            return PredictedLosses(losses=[losses.tolist() for losses in space.losses])

        kept = self.session.store.result("planning/predicted-losses.json", PredictedLosses, key, compute)
        losses = [np.array(by_choice) for by_choice in kept.losses]
        return SearchSpace(self.languages, groups, losses, np.ones(len(self.languages)))

    def _gains(self) -> dict[str, float]:
        """The gain of second-order rounding by layer, from the second moments of its inputs, block by block."""
        model = self.session.original
        gains: dict[str, float] = {}
        sample = replace(self.calibration, texts=self.calibration.texts.spread(self.calibration_passages))
        stream = BlockStream(model, sample, equal_weights(self.languages))
        with self.session.progress.stage("second moments", len(model.blocks)) as advance:
            for index in range(len(model.blocks)):
                linears = [linear for linear in model.anatomy.linears if linear.block == index]
                with model.present(index):
                    moments = stream.pass_through(index, linears)
                # Layers that read the same input share one matrix.
                distinct = {id(seen): seen.moments for seen in moments.values()}
                by_matrix = {key: second_order_gain(Hessian(matrix)) for key, matrix in distinct.items()}
                gains |= {name: by_matrix[id(seen)] for name, seen in moments.items()}
                advance(1)
        return gains

    def allocate(
        self, space: SearchSpace, *, limit: int | None = None, gap: float = GAP, seconds: float = SECONDS
    ) -> Allocation:
        losses = [space.scale * by_choice for by_choice in space.losses]
        allocation = allocate(
            losses, space.sizes, limit or self.budget.bits, self.options.objective,
            weights=self.user_weights, gap=gap, seconds=seconds,
        )  # fmt: skip
        self.timed_out |= allocation.timed_out
        return allocation

    def probe(self, space: SearchSpace, number: int) -> Probe:
        """A random plan of about the budget's size, predicted and measured. It is the best plan for losses multiplied by random factors."""
        random = np.random.default_rng([number, len(space.groups)])
        noisy = replace(space, losses=[losses * random.lognormal(0, 1) for losses in space.losses])
        least = int(sum(size.min() for size in space.sizes))
        limit = max(least, int(self.budget.bits * random.uniform(0.85, 1.15)))
        chosen = self.allocate(noisy, limit=limit, gap=0.1).chosen
        plan = self.plan(space.tensors(chosen), equal_weights(self.languages))
        measured = self.measure(f"probe-{number}", plan)
        self.forget(plan)
        return Probe(predicted=space.predict(np.array(chosen)).tolist(), measured=measured.losses)

    def plan(self, tensors: list[TensorPlan], weights: dict[str, float], predicted: np.ndarray | None = None) -> Plan:
        expected = {} if predicted is None else dict(zip(self.languages, predicted.tolist(), strict=True))
        return Plan(
            method=self.options.method,
            tensors=tensors,
            size=count_size(tensors, self.session.original.anatomy),
            weights=weights,
            passages=self.calibration_passages,
            predicted=expected,
        )

    def forget(self, plan: Plan) -> None:
        """Drop the rounded layers of a plan that will not be written."""
        if (blocks := self.session.rounded_blocks(plan, self.calibration)) is not None:
            blocks.drop()

    def measure(self, name: str, plan: Plan) -> MeasuredPlan:
        """The plan, quantized and measured on validation text."""

        def quantize() -> Quantized:
            return self.session.quantized(plan, self.calibration, title=f"rounding, {name}")

        key = key_of("planned", self._text_key, plan.model_dump())
        candidate = InMemory(f"planning/{name}", key, plan, quantize)
        measured = self.session.measure_pooled(candidate, self.validation, part="validation")
        losses = PlanLosses.of([measured[code] for code in self.languages])
        return MeasuredPlan(plan, losses)
