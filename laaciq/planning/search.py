"""The search for a plan: allocate, measure, correct the predictions, reweight the languages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from laaciq.errors import BadOption
from laaciq.options import WeightOptions
from laaciq.planning.minimax import IMPROVEMENT, minimax_rounds
from laaciq.planning.objectives import objective_value
from laaciq.planning.planner import EFFORT_PRESETS, MeasuredPlan, Planner
from laaciq.planning.results import Agreement, FrontPoint, PlanLosses, Planning, Probe, Round
from laaciq.planning.rules import deciding_languages, held_out
from laaciq.planning.search_space import SearchSpace
from laaciq.quantization.calibration import Calibration
from laaciq.trials.session import Session

# Weight of the measurement in a language's scale: one half, because few passages are noisy.
_SHRINKAGE = 0.5
# Sizes of the plans of the Pareto front, in bits per weight.
FRONT = (2.5, 3.0, 3.25, 3.5, 4.0, 4.25, 4.5, 5.0, 6.0)


def search_plan(session: Session, calibration: Calibration, options: WeightOptions) -> Planning:
    """The plan of method 'planned', and how it was chosen. Its rounded layers are in the session's store.

    Reads the calibration and validation text of served languages.
    """
    if calibration.profile is None:
        raise BadOption("planning needs a profile of the model: profile it on the calibration text first")
    deciding = deciding_languages(calibration.profile, options, session.options.served_bound)
    preset = EFFORT_PRESETS[options.effort]
    validation = calibration.validation_texts(deciding).spread(-(-preset.validation // len(deciding)))
    planner = Planner(session, replace(calibration, texts=calibration.texts.select(deciding)), validation, options)
    space = planner.search_space()
    search = Search(planner, space, [planner.probe(space, number) for number in range(preset.probes)])
    search.run()
    best = search.measured[search.best]
    # Tuned once, when it is written: tuning every tried plan would take several times as long.
    tuned = preset.tuned if options.tune is None else options.tune
    front = pareto_front(planner, search.space) if preset.front else []
    return Planning(
        plan=best.plan.model_copy(update={"tuned": tuned}),
        objective=options.objective,
        effort=options.effort,
        languages=deciding,
        held_out=held_out(options),
        nll_per_kl=search.nll_per_kl.tolist(),
        scale=search.space.scale.tolist(),
        gap=search.gap,
        rounds=search.rounds,
        chosen=search.best,
        probes=search.probes,
        agreement=agreement(search.probes, search.space.scale, search.nll_per_kl),
        front=front,
        timed_out=planner.timed_out,
    )


@dataclass
class Search:
    """From the search space and the measured random plans to one plan per round.

    The first plan is the best for the predicted losses. Its measurement corrects the predictions. After that, each round weights the
    languages by their losses in the round before, until nothing is gained.
    """

    planner: Planner
    space: SearchSpace
    probes: list[Probe]
    rounds: list[Round] = field(default_factory=list)
    measured: list[MeasuredPlan] = field(default_factory=list)
    best: int = 0
    gap: float = 0.0

    @property
    def nll_per_kl(self) -> np.ndarray:
        return _nll_per_kl([probe.measured for probe in self.probes])

    def run(self) -> None:
        options, user = self.planner.options, self.planner.user_weights
        if self.probes:
            self.space = self.space.rescaled(_scales(self.probes, self.nll_per_kl))
        start = np.full(len(self.planner.languages), 1 / len(self.planner.languages))
        if options.objective == "mean" and user is not None:
            start = user / user.sum()
        first = self._allocate()
        losses = self._measure(first, start, probed=True)
        self.space = self.space.rescaled(_shrunk(losses / np.maximum(self.space.predict(np.array(first)), 1e-12)))
        refined = self._allocate()
        if options.objective == "mean":
            if refined != first:
                self._measure(refined, start)
            return

        def measure(number: int, weights: np.ndarray) -> np.ndarray:
            return losses if number == 0 else self._measure(refined, weights)

        for _ in minimax_rounds(start, measure, options.objective, self.planner.preset.rounds):
            pass

    def _allocate(self) -> list[int]:
        allocation = self.planner.allocate(self.space)
        self.gap = allocation.gap
        return allocation.chosen

    def _measure(self, chosen: list[int], weights: np.ndarray, *, probed: bool = False) -> np.ndarray:
        """Losses of a round. A `probed` plan is measured with equal weights of languages, like random plans."""
        planner = self.planner
        predicted = self.space.predict(np.array(chosen))
        by_language = dict(zip(planner.languages, weights.tolist(), strict=True))
        plan = planner.plan(self.space.tensors(chosen), by_language, predicted)
        measured = planner.measure(f"round-{len(self.rounds)}", plan)
        if probed:
            unscaled = predicted / self.space.scale
            self.probes = [*self.probes, Probe(predicted=unscaled.tolist(), measured=measured.losses)]
        losses = self.nll_per_kl * np.array(measured.losses.divergence)
        self.rounds.append(
            Round(
                weights=weights.tolist(),
                predicted=predicted.tolist(),
                losses=losses.tolist(),
                bits_per_weight=plan.size.block_bits_per_weight,
                value=float(objective_value(losses, planner.options.objective, planner.user_weights)),
            )
        )
        self._choose(measured)
        return losses

    def _choose(self, measured: MeasuredPlan) -> None:
        """The better plan; of two equally good ones the earlier: smaller differences on few passages are chance."""
        self.measured.append(measured)
        latest = len(self.rounds) - 1
        if latest and self.rounds[latest].value >= (1 - IMPROVEMENT) * self.rounds[self.best].value:
            worse = latest
        else:
            worse, self.best = self.best, latest
        # Only the layers of the best plan stay.
        if self.measured[worse].plan != self.measured[self.best].plan:
            self.planner.forget(self.measured[worse].plan)


def pareto_front(planner: Planner, space: SearchSpace) -> list[FrontPoint]:
    """The best predicted plans over a range of sizes."""
    weights = sum(tensor.weights for tensor in planner.tensors)
    least = sum(size.min() for size in space.sizes)
    points = []
    with planner.session.progress.stage("Pareto front", len(FRONT)) as advance:
        for bits in FRONT:
            if bits * weights >= least:
                allocation = planner.allocate(space, limit=int(bits * weights), gap=0.02, seconds=10.0)
                worst, best = allocation.losses.max(), allocation.losses.min()
                points.append(
                    FrontPoint(
                        bits_per_weight=allocation.size / weights,
                        worst=float(worst),
                        disparity=float(np.expm1(worst) - np.expm1(best)),
                    )
                )
            advance(1)
    return points


def _nll_per_kl(measured: list[PlanLosses]) -> np.ndarray:
    """Rise of NLL per nat of divergence by language, over all measured plans; at least a tenth."""
    rise = np.sum([losses.nll_increase for losses in measured], axis=0)
    return _shrunk(np.maximum(rise / np.sum([losses.divergence for losses in measured], axis=0), 0.1))


def _scales(probes: list[Probe], nll_per_kl: np.ndarray) -> np.ndarray:
    """Ratio of measured to predicted losses by language."""
    ratios = [nll_per_kl * np.array(probe.measured.divergence) / np.maximum(probe.predicted, 1e-12) for probe in probes]
    return _shrunk(np.median(ratios, axis=0))


def _shrunk(ratios: np.ndarray) -> np.ndarray:
    """The scales, shrunk towards their geometric mean."""
    logarithms = np.log(np.maximum(ratios, 1e-6))
    return np.exp(logarithms.mean() + _SHRINKAGE * (logarithms - logarithms.mean()))


def agreement(probes: list[Probe], scale: np.ndarray, nll_per_kl: np.ndarray) -> Agreement:
    predicted = np.array([scale * np.array(probe.predicted) for probe in probes]).ravel()
    measured = np.array([nll_per_kl * np.array(probe.measured.divergence) for probe in probes]).ravel()
    logarithms = np.log(np.maximum([predicted, measured], 1e-12))
    r = float(np.corrcoef(logarithms)[0, 1]) if len(predicted) > 2 else None
    return Agreement(r=r, error=float(np.median(np.abs(measured / predicted - 1))))
