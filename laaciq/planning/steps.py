"""The steps of planning, one at a time: predict, allocate, quantize and measure. What takes long is kept in the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import TypeVar

import numpy as np
from pydantic import BaseModel

from laaciq.corpus import Texts, language
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder, key_of
from laaciq.errors import BadOption
from laaciq.models import LanguageModel
from laaciq.options import Effort, WeightOptions
from laaciq.options.values import parse_language_weight
from laaciq.planning.budget import Budget, size_budget
from laaciq.planning.curvature import measure_curvature
from laaciq.planning.milp import GAP, SECONDS, Allocation, allocate
from laaciq.planning.results import PlanLosses, PredictedLosses, Probe
from laaciq.planning.rules import equal_weights
from laaciq.planning.search_space import FORMATS, SearchSpace, make_search_space, second_order_gain
from laaciq.planning.tensor_groups import base_plans, make_tensor_groups
from laaciq.planning.validation import Validation
from laaciq.quantization import Calibration
from laaciq.quantization.matrices import moment_parts
from laaciq.quantization.plan import Plan, TensorPlan, count_size

Kept = TypeVar("Kept", bound=BaseModel)


@dataclass(frozen=True)
class EffortPreset:
    """Passages for curvature and validation, and calibration tokens for every input of the widest layer, of all languages together; random
    plans, rounds of minimax, epochs of tuning."""

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


@dataclass
class Planner:
    """What all steps share. `calibration` and `validation` hold the languages that decide."""

    model: LanguageModel
    calibration: Calibration
    validation: Texts
    options: WeightOptions
    store: RunFolder | None
    progress: Progress

    @property
    def languages(self) -> list[str]:
        return self.validation.languages

    @cached_property
    def preset(self) -> EffortPreset:
        return EFFORT_PRESETS[self.options.effort]

    @cached_property
    def tensors(self) -> list[TensorPlan]:
        whole = self.options.budget_for == "model"
        return base_plans(self.model.anatomy, symmetric=False, token_matrices=whole)

    @cached_property
    def budget(self) -> Budget:
        return size_budget(self.model.anatomy, self.options, self.tensors)

    @cached_property
    def text_key(self) -> str:
        texts = (self.calibration.texts.fingerprint, self.validation.fingerprint)
        return key_of(self.model.folder.fingerprint, texts, self.calibration.options.model_dump(), self.options.effort)

    @cached_property
    def user_weights(self) -> np.ndarray | None:
        return user_weights(self.options.language_weight, self.languages)

    @cached_property
    def measuring(self) -> Validation:
        return Validation(self.model, self.validation, self.calibration.options)

    def share(self, passages: int) -> int:
        """Of each language."""
        return -(-passages // len(self.languages))

    @cached_property
    def calibration_passages(self) -> int:
        """Of each language. Second moments of many inputs need many tokens: with fewer than inputs they say nothing of most directions."""
        widest = max(linear.shape[1] for linear in self.model.anatomy.linears)
        seen = [text for own in self.calibration.texts.spread(4).by_language.values() for text in own.texts]
        tokens = sum(map(len, self.model.tokenizer(seen, add_special_tokens=False)["input_ids"])) / len(seen)
        return self.share(ceil(self.preset.tokens * widest / max(tokens, 1)))

    def menu(self) -> SearchSpace:
        """Predicted losses, not yet to scale."""
        units = make_tensor_groups(self.tensors, FORMATS[self.options.effort], self.options.runtime)
        # Before anything is measured: a budget that allows no plan is refused at once.
        self.budget.require(int(sum(unit.sizes.min() for unit in units)))
        key = key_of("menu", self.text_key, [[p.model_dump() for p in c] for unit in units for c in unit.choices])

        def compute() -> PredictedLosses:
            few = self.calibration.texts.spread(self.share(self.preset.curvature))
            matrices = {tensor.name: self.model.anatomy.matrices[tensor.name] for tensor in self.tensors}
            with self.progress.stage("curvature", sum(map(len, few.by_language.values()))) as advance:
                curvature = measure_curvature(self.model, matrices, few, self.calibration.options, advance=advance)
            gains = self._gains()
            with self.progress.stage("predicting", len(units)) as advance:
                found = make_search_space(units, matrices, curvature, gains, advance=advance)
            return PredictedLosses(losses=[own.tolist() for own in found.losses])

        losses = [np.array(own) for own in self._kept("menu", PredictedLosses, key, compute).losses]
        return SearchSpace(self.languages, units, losses, np.ones(len(self.languages)))

    def _gains(self) -> dict[str, float]:
        gains: dict[str, float] = {}
        few = replace(self.calibration, texts=self.calibration.texts.spread(self.calibration_passages))
        for part in moment_parts(list(self.model.anatomy.linears)):
            moments = few.second_moments(self.model, part, self.languages)
            gains |= {name: second_order_gain(seen) for name, seen in moments.items()}
        return gains

    def allocate(
        self, menu: SearchSpace, *, limit: int | None = None, gap: float = GAP, seconds: float = SECONDS
    ) -> Allocation:
        losses = [menu.scale * own for own in menu.losses]
        return allocate(
            losses, menu.sizes, limit or self.budget.bits, self.options.objective,
            weights=self.user_weights, gap=gap, seconds=seconds,
        )  # fmt: skip

    def probe(self, menu: SearchSpace, number: int) -> Probe:
        """A random plan of about the budget's size, predicted and measured: the best one for losses that are off by random factors."""
        random = np.random.default_rng([number, len(menu.units)])
        noisy = replace(menu, losses=[own * random.lognormal(0, 1) for own in menu.losses])
        least = int(sum(size.min() for size in menu.sizes))
        limit = max(least, int(self.budget.bits * random.uniform(0.85, 1.15)))
        chosen = self.allocate(noisy, limit=limit, gap=0.1, seconds=5.0).chosen
        plan = self.plan(menu.tensors(chosen), equal_weights(self.languages))
        return Probe(predicted=menu.predict(np.array(chosen)).tolist(), measured=self.measure(f"probe-{number}", plan))

    def plan(self, tensors: list[TensorPlan], weights: dict[str, float], predicted: np.ndarray | None = None) -> Plan:
        expected = {} if predicted is None else dict(zip(self.languages, predicted.tolist(), strict=True))
        return Plan(
            method=self.options.method,
            tensors=tensors,
            size=count_size(tensors, self.model.anatomy),
            weights=weights,
            passages=self.calibration_passages,
            predicted=expected,
        )

    def measure(self, name: str, plan: Plan) -> PlanLosses:
        key = key_of("measured", self.text_key, plan.model_dump())

        def compute() -> PlanLosses:
            with self.progress.stage(name, 1):
                return self.measuring.measure(plan, self.calibration)

        return self._kept(name, PlanLosses, key, compute)

    def _kept(self, name: str, kind: type[Kept], key: str, compute: Callable[[], Kept]) -> Kept:
        return compute() if self.store is None else self.store.result(f"planning/{name}.json", kind, key, compute)


def user_weights(entries: tuple[str, ...], languages: list[str]) -> np.ndarray | None:
    """`("eng=5", "swa=2")` → by language, one where nothing is said."""
    if not entries:
        return None
    found = dict.fromkeys(languages, 1.0)
    for entry in entries:
        name, weight = parse_language_weight(entry)
        if (code := language(name).code) not in found:
            raise BadOption(f"--language-weight names {code}, which is not among the languages that decide")
        found[code] = weight
    if not sum(found.values()):
        raise BadOption("all --language-weight are zero: give one language a positive weight")
    return np.array(list(found.values()))
