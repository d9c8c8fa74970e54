"""The search for a plan: measured, refined once from what was measured, with the languages' weights played against it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from laaciq.planning.minimax import minimax_rounds
from laaciq.planning.objectives import objective_value
from laaciq.planning.results import Agreement, PlanLosses, Probe, Round
from laaciq.planning.search_space import SearchSpace
from laaciq.planning.steps import Planner
from laaciq.quantization.grid import Layers
from laaciq.quantization.plan import Plan

# How far a language's scale follows what was measured: half of the way, since few passages are noisy.
_SHRINKAGE = 0.5


@dataclass
class Search:
    """From the menu and the random plans that were measured to the plans that are: each a round, the best one to be chosen.

    The first round's plan is for losses as predicted; what it measures corrects them. The second plan's languages are weighed by what they
    lost in the first, and so on, until nothing is gained.
    """

    planner: Planner
    menu: SearchSpace
    probes: list[Probe]
    rounds: list[Round] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    # None where the measurement was read from the store.
    best_layers: Layers | None = None
    gap: float = 0.0

    @property
    def exchange(self) -> np.ndarray:
        return _exchange([probe.measured for probe in self.probes])

    @property
    def best(self) -> int:
        """The round that lost least."""
        return int(np.argmin([own.value for own in self.rounds]))

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

        for _ in minimax_rounds(start, played, options.objective, self.planner.preset.rounds):
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
        if self.best == len(self.rounds) - 1:
            self.best_layers = planner.measuring.rounded.take(plan)
        return losses


def _exchange(measured: list[PlanLosses]) -> np.ndarray:
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


def agreement(probes: list[Probe], scale: np.ndarray, exchange: np.ndarray) -> Agreement:
    predicted = np.array([scale * np.array(own.predicted) for own in probes]).ravel()
    measured = np.array([exchange * np.array(own.measured.divergence) for own in probes]).ravel()
    r = float(np.corrcoef(np.log(np.maximum(predicted, 1e-12)), np.log(np.maximum(measured, 1e-12)))[0, 1])
    return Agreement(r=r, error=float(np.median(np.abs(measured / predicted - 1))))
