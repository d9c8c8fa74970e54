"""From a model, calibration text and validation text to a plan for the worst-off language under a budget. Test text never comes here.

Curvature predicts what every way to store every tensor costs every language; random plans that are measured put the prediction to scale; the
programme allocates; the plan is quantized and measured, refined once from what was measured, and the languages' weights are played
against it round by round. The best plan that was measured is the result. Every step that takes long is kept in the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from pydantic import BaseModel

from laaciq.allocation.curvature import measure_curvature
from laaciq.allocation.menu import MENUS, Menu, make_menu, second_order_gain
from laaciq.allocation.minimax import play
from laaciq.allocation.objectives import objective_value
from laaciq.allocation.programme import GAP, SECONDS, Allocation, allocate
from laaciq.allocation.results import Agreement, FrontPoint, Measured, MenuLosses, Planning, Probe, Round
from laaciq.allocation.units import base_plans, make_units
from laaciq.allocation.validation import Validation
from laaciq.corpus import Texts, language
from laaciq.engine.progress import Silence
from laaciq.engine.store import RunFolder, key_of
from laaciq.errors import BadOption
from laaciq.models import LanguageModel
from laaciq.options import FULL_BITS, Effort, QuantizeOptions
from laaciq.planning import Plan, TensorPlan
from laaciq.planning.plan import count_size
from laaciq.planning.strategy import equal_weights, served_languages
from laaciq.quantization import Calibration
from laaciq.quantization.matrices import moment_parts

Kept = TypeVar("Kept", bound=BaseModel)


@dataclass(frozen=True)
class Thoroughness:
    """Passages for curvature, calibration and validation, of all languages together; random plans, rounds of minimax, epochs of tuning."""

    curvature: int
    calibration: int
    validation: int
    probes: int
    rounds: int
    tuned: int
    front: bool


EFFORTS: dict[Effort, Thoroughness] = {
    "fast": Thoroughness(curvature=32, calibration=128, validation=128, probes=0, rounds=1, tuned=2, front=False),
    "full": Thoroughness(curvature=256, calibration=2000, validation=2000, probes=12, rounds=6, tuned=6, front=True),
}
# Sizes of the front's plans, in bits a weight.
FRONT = (2.5, 3.0, 3.25, 3.5, 4.0, 4.25, 4.5, 5.0, 6.0)
# How far a language's scale follows what was measured: half of the way, since few passages are noisy.
_SHRINKAGE = 0.5


@dataclass
class Planner:
    """What all steps share. `calibration` and `validation` hold the languages that decide."""

    model: LanguageModel
    calibration: Calibration
    validation: Texts
    options: QuantizeOptions
    store: RunFolder | None
    progress: Silence

    @property
    def languages(self) -> list[str]:
        return self.validation.languages

    @cached_property
    def thoroughness(self) -> Thoroughness:
        return EFFORTS[self.options.effort]

    @cached_property
    def tensors(self) -> list[TensorPlan]:
        whole = self.options.budget_for == "model"
        return base_plans(self.model.anatomy, symmetric=False, token_matrices=whole)

    @cached_property
    def limit(self) -> int:
        """Bits that the units may take."""
        return budget_bits(self.model, self.options, self.tensors)

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

    def menu(self) -> Menu:
        """Predicted losses, not yet to scale."""
        units = make_units(self.tensors, MENUS[self.options.effort], self.options.runtime)
        key = key_of("menu", self.text_key, [[p.model_dump() for p in c] for unit in units for c in unit.choices])

        def compute() -> MenuLosses:
            few = self.calibration.texts.spread(self.share(self.thoroughness.curvature))
            matrices = {tensor.name: self.model.anatomy.matrices[tensor.name] for tensor in self.tensors}
            with self.progress.stage("curvature", sum(map(len, few.by_language.values()))) as advance:
                curvature = measure_curvature(self.model, matrices, few, self.calibration.options, advance=advance)
            gains = self._gains()
            with self.progress.stage("predicting", len(units)) as advance:
                found = make_menu(units, matrices, curvature, gains, advance=advance)
            return MenuLosses(losses=[own.tolist() for own in found.losses])

        losses = [np.array(own) for own in self._kept("menu", MenuLosses, key, compute).losses]
        return Menu(self.languages, units, losses, np.ones(len(self.languages)))

    def _gains(self) -> dict[str, float]:
        gains: dict[str, float] = {}
        few = replace(self.calibration, texts=self.calibration.texts.spread(self.share(self.thoroughness.calibration)))
        for part in moment_parts(list(self.model.anatomy.linears)):
            moments = few.second_moments(self.model, part, self.languages)
            gains |= {name: second_order_gain(seen) for name, seen in moments.items()}
        return gains

    def allocate(
        self, menu: Menu, *, limit: int | None = None, gap: float = GAP, seconds: float = SECONDS
    ) -> Allocation:
        losses = [menu.scale * own for own in menu.losses]
        return allocate(
            losses, menu.sizes, limit or self.limit, self.options.objective,
            weights=self.user_weights, gap=gap, seconds=seconds,
        )  # fmt: skip

    def probe(self, menu: Menu, number: int) -> Probe:
        """A random plan of about the budget's size, predicted and measured: the best one for losses that are off by random factors."""
        random = np.random.default_rng([number, len(menu.units)])
        noisy = replace(menu, losses=[own * random.lognormal(0, 1) for own in menu.losses])
        least = int(sum(size.min() for size in menu.sizes))
        limit = max(least, int(self.limit * random.uniform(0.85, 1.15)))
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
            passages=self.share(self.thoroughness.calibration),
            predicted=expected,
        )

    def measure(self, name: str, plan: Plan) -> Measured:
        key = key_of("measured", self.text_key, plan.model_dump())

        def compute() -> Measured:
            with self.progress.stage(name, 1):
                return self.measuring.measure(plan, self.calibration)

        return self._kept(name, Measured, key, compute)

    def _kept(self, name: str, kind: type[Kept], key: str, compute: Callable[[], Kept]) -> Kept:
        return compute() if self.store is None else self.store.result(f"planning/{name}.json", kind, key, compute)


def plan_model(
    model: LanguageModel,
    calibration: Calibration,
    validation: Texts,
    options: QuantizeOptions,
    *,
    served_bound: float,
    store: RunFolder | None = None,
    progress: Silence | None = None,
) -> Planning:
    """The plan of method 'planned', and how it was found. Reads the calibration and the validation text of languages that are served."""
    held_out = [language(name).code for name in options.hold_out or ()]
    if calibration.profile is None:
        raise BadOption("planning needs a profile of the model: make one of the calibration text first")
    served = served_languages(calibration.profile, served_bound, options.calibrate)
    deciding = [code for code in served if code not in held_out]
    if not deciding:
        raise BadOption("--hold-out leaves no language to plan for: hold out fewer")
    how = EFFORTS[options.effort]
    known = calibration.texts.select(deciding)
    checked = validation.select(deciding)
    planner = Planner(
        model,
        replace(calibration, texts=known),
        checked.spread(-(-how.validation // len(deciding))),
        options,
        store,
        progress or Silence(),
    )
    menu = planner.menu()
    probes = [planner.probe(menu, number) for number in range(how.probes)]
    search = Search(planner, menu, probes)
    search.run()
    chosen = int(np.argmin([own.value for own in search.rounds]))
    return Planning(
        # Tuned once, when it is written: to tune every plan that is tried would take the time of all of them.
        plan=search.plans[chosen].model_copy(update={"tuned": how.tuned if options.tune is None else options.tune}),
        objective=options.objective,
        effort=options.effort,
        languages=deciding,
        held_out=held_out,
        exchange=search.exchange.tolist(),
        scale=search.menu.scale.tolist(),
        gap=search.gap,
        rounds=search.rounds,
        chosen=chosen,
        probes=search.probes,
        agreement=_agreement(search.probes, search.menu.scale, search.exchange),
        front=_front(planner, search.menu) if how.front else [],
    )


@dataclass
class Search:
    """From the menu and the random plans that were measured to the plans that are: each a round, the best one to be chosen.

    The first round's plan is for losses as predicted; what it measures corrects them. The second plan's languages are weighed by what they
    lost in the first, and so on, until nothing is gained.
    """

    planner: Planner
    menu: Menu
    probes: list[Probe]
    rounds: list[Round] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    gap: float = 0.0

    @property
    def exchange(self) -> np.ndarray:
        return _exchange([probe.measured for probe in self.probes])

    def run(self) -> None:
        options, user = self.planner.options, self.planner.user_weights
        if self.probes:
            self.menu = self.menu.rescaled(_scales(self.probes, self.exchange))
        start = np.full(len(self.planner.languages), 1 / len(self.planner.languages))
        if options.objective == "mean" and user is not None:
            start = user / user.sum()
        first = self._allocate()
        losses = self._measure(first, start, probed=True)
        self.menu = self.menu.rescaled(_shrunk(losses / np.maximum(self.menu.predict(np.array(first)), 1e-12)))
        refined = self._allocate()
        if options.objective == "mean":
            if refined != first:
                self._measure(refined, start)
            return

        def played(number: int, weights: np.ndarray) -> np.ndarray:
            return losses if number == 0 else self._measure(refined, weights)

        for _ in play(start, played, options.objective, self.planner.thoroughness.rounds):
            pass

    def _allocate(self) -> list[int]:
        found = self.planner.allocate(self.menu)
        self.gap = found.gap
        return found.chosen

    def _measure(self, chosen: list[int], weights: np.ndarray, *, probed: bool = False) -> np.ndarray:
        """Losses of a round. What is `probed` is measured with languages that count alike, as random plans are."""
        planner = self.planner
        predicted = self.menu.predict(np.array(chosen))
        plan = planner.plan(
            self.menu.tensors(chosen), dict(zip(planner.languages, weights.tolist(), strict=True)), predicted
        )
        measured = planner.measure(f"round-{len(self.rounds)}", plan)
        if probed:
            unscaled = predicted / self.menu.scale
            self.probes = [*self.probes, Probe(predicted=unscaled.tolist(), measured=measured)]
        losses = self.exchange * np.array(measured.divergence)
        self.plans.append(plan)
        self.rounds.append(
            Round(
                weights=weights.tolist(),
                predicted=predicted.tolist(),
                losses=losses.tolist(),
                bits_per_weight=plan.size.block_bits_per_weight,
                value=float(objective_value(losses, planner.options.objective, planner.user_weights)),
            )
        )
        return losses


def _exchange(measured: list[Measured]) -> np.ndarray:
    """What the loss rises by for a nat of divergence, by language, over all that was measured; never less than a tenth."""
    rise = np.sum([own.rise for own in measured], axis=0)
    return _shrunk(np.maximum(rise / np.sum([own.divergence for own in measured], axis=0), 0.1))


def _scales(probes: list[Probe], exchange: np.ndarray) -> np.ndarray:
    """What measured losses are of predicted ones, by language."""
    ratios = [exchange * np.array(own.measured.divergence) / np.maximum(own.predicted, 1e-12) for own in probes]
    return _shrunk(np.median(ratios, axis=0))


def _shrunk(ratios: np.ndarray) -> np.ndarray:
    """Towards their geometric mean."""
    logarithms = np.log(np.maximum(ratios, 1e-6))
    return np.exp(logarithms.mean() + _SHRINKAGE * (logarithms - logarithms.mean()))


def _agreement(probes: list[Probe], scale: np.ndarray, exchange: np.ndarray) -> Agreement:
    predicted = np.array([scale * np.array(own.predicted) for own in probes]).ravel()
    measured = np.array([exchange * np.array(own.measured.divergence) for own in probes]).ravel()
    r = float(np.corrcoef(np.log(np.maximum(predicted, 1e-12)), np.log(np.maximum(measured, 1e-12)))[0, 1])
    return Agreement(r=r, error=float(np.median(np.abs(measured / predicted - 1))))


def _front(planner: Planner, menu: Menu) -> list[FrontPoint]:
    weights = sum(tensor.weights for tensor in planner.tensors)
    least = sum(size.min() for size in menu.sizes)
    found = []
    with planner.progress.stage("front", len(FRONT)) as advance:
        for bits in FRONT:
            if bits * weights >= least:
                plan = planner.allocate(menu, limit=int(bits * weights), gap=0.02, seconds=10.0)
                worst, best = plan.losses.max(), plan.losses.min()
                found.append(
                    FrontPoint(
                        bits_per_weight=plan.size / weights,
                        worst=float(worst),
                        disparity=float(np.expm1(worst) - np.expm1(best)),
                    )
                )
            advance(1)
    return found


def budget_bits(model: LanguageModel, options: QuantizeOptions, tensors: list[TensorPlan]) -> int:
    """What the planned tensors may take: the budget, or as much as the plain grid of --bits and --group-size would."""
    plain = {"bits": options.bits, "group_size": options.group_size, "symmetric": True}
    in_blocks = [tensor for tensor in tensors if not tensor.used_by]
    others = FULL_BITS * sum(tensor.weights for tensor in tensors if tensor.used_by)
    if options.budget is None:
        return sum(tensor.model_copy(update=plain).stored_bits for tensor in in_blocks) + others
    if options.budget_for == "blocks":
        return int(options.budget * sum(tensor.weights for tensor in in_blocks))
    everything = model.anatomy.parameter_count()
    return int(options.budget * everything) - FULL_BITS * (everything - sum(tensor.weights for tensor in tensors))


def user_weights(entries: tuple[str, ...], languages: list[str]) -> np.ndarray | None:
    """`("eng=5", "swa=2")` → by language, one where nothing is said."""
    if not entries:
        return None
    found = dict.fromkeys(languages, 1.0)
    for entry in entries:
        name, separator, number = entry.partition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not separator or weight < 0:
            raise BadOption(f"--language-weight {entry!r} is no weight: write for example 'swa=3'")
        if (code := language(name).code) not in found:
            raise BadOption(f"--language-weight names {code}, which is not among the languages that decide")
        found[code] = weight
    if not sum(found.values()):
        raise BadOption("all --language-weight are zero: give one language a positive weight")
    return np.array(list(found.values()))
