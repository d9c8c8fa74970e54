"""Losses of candidates: the model stored in one way or another, and baselines of the same size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from laaciq.engine.store import key_of
from laaciq.lab.measurements.bench import Bench, Measurement
from laaciq.models import LanguageModel
from laaciq.options import BITS, FULL_BITS, WeightOptions, reads_text
from laaciq.planning.decision import needs_profile
from laaciq.planning.rules import make_plans
from laaciq.quantization.calibration import Calibration
from laaciq.quantization.grid import QuantizedMatrix
from laaciq.quantization.model import quantize_layers
from laaciq.quantization.plan import Plan, PlanSet, TensorPlan
from laaciq.quantization.stored_layers import StoredLayers
from laaciq.trials.candidate import Candidate, TextFreePlan
from laaciq.trials.losses import Losses
from laaciq.trials.quantized_copy import CandidateWeights, QuantizedCopy

# Shares of weights kept in 16 bits, in percent.
KEPT = (0.01, 0.1, 1.0, 5.0, 10.0)
GROUP = 64


@dataclass(frozen=True)
class RuledPlans:
    """Plans by rules whose grids read the profile; with several plans, each language has its own."""

    name: str
    key: str
    plans: PlanSet
    bench: Bench

    @contextmanager
    def applied(self, copy: QuantizedCopy, language: str) -> Iterator[LanguageModel]:
        serving = self.plans.serving(language)
        plan = self.plans.plans[serving]
        table = plan.table_of(language)

        def weights() -> CandidateWeights:
            # Tables share the codes, which are rounded once for all languages.
            if not plan.tables:
                return CandidateWeights(self._layers(plan))
            device = self.bench.session.original.device
            layers = self.bench.session.once(("layers", self.key), lambda: StoredLayers.of(self._layers(plan), device))
            return CandidateWeights(layers, table=table)

        yield copy.hold_weights((self.key, serving, table), weights)

    def _layers(self, plan: Plan) -> Iterable[tuple[TensorPlan, QuantizedMatrix]]:
        session = self.bench.session
        calibration = Calibration(self.bench.profile, self.bench.profiled, session.options)
        return quantize_layers(session.original, plan, calibration)


def candidate(bench: Bench, name: str, options: WeightOptions) -> Candidate:
    """The model quantized by the rules of these options."""
    plans = plans_of(bench, options)
    key = key_of("lab", options.model_dump(), plans.model_dump())
    if not reads_text(options):
        return TextFreePlan(f"lab/{name}", key, plans.first)
    read = bench.session.profile_key(bench.profiled)
    return RuledPlans(f"lab/{name}", key_of(key, read), plans, bench)


def plans_of(bench: Bench, options: WeightOptions) -> PlanSet:
    profile = bench.profile if needs_profile(options) else None
    bound = bench.session.options.served_bound
    return make_plans(bench.session.original.anatomy, options, profile, served_bound=bound)


def size_of(bench: Bench, options: WeightOptions) -> float:
    """Bits per weight in the blocks, everything counted."""
    return max(plan.size.block_bits_per_weight for plan in plans_of(bench, options).plans.values())


def same_size(bench: Bench, options: WeightOptions, method: str) -> WeightOptions:
    """A uniform grid that is at least as large as these options make the model, by as little as its group size allows."""
    target = size_of(bench, options)
    bits = max(width for width in BITS if width + FULL_BITS / 1024 < target)
    group = max(1, int(FULL_BITS / (target - bits)))
    while group > 1:
        uniform = WeightOptions(method=method, bits=bits, group_size=group)
        if size_of(bench, uniform) >= target:
            return uniform
        group -= 1
    return WeightOptions(method=method, bits=bits, group_size=1)


def _losses(bench: Bench, name: str, given: dict[str, Any]) -> Losses:
    return bench.losses(candidate(bench, name, WeightOptions(**given)))


def _losses_at_size(bench: Bench, name: str, uniform: str, given: dict[str, Any]) -> Losses:
    return bench.losses(candidate(bench, name, same_size(bench, WeightOptions(**given), uniform)))


def _stored(name: str, describes: str, **given: Any) -> Measurement:
    return Measurement(name, f"losses: {describes}", partial(_losses, name=name, given={"group_size": GROUP, **given}))


def _as_large_as(other: str, uniform: str, **given: Any) -> Measurement:
    name = f"{uniform}-as-{other}"
    measure = partial(_losses_at_size, name=name, uniform=uniform, given={"group_size": GROUP, **given})
    return Measurement(name, f"losses: {uniform} on a uniform grid, as large as {other}", measure)


def _with_outliers(measurement: Measurement) -> Measurement:
    """Of models that have outlier blocks."""

    def measure(bench: Bench) -> object:
        bench.table.require_outliers()
        return measurement.measure(bench)

    return replace(measurement, measure=measure)


_OUTLIERS = {"bits": 4, "outlier_bits": 8}
_MIXED = {"bits": 4, "keep": 5.0, "attention_bits": 8}
_ADAPTIVE = {"method": "adaptive", "bits": 4}
_KEPT_FIVE = {"bits": 4, "keep": 5.0}
_LA_ACIQ = {"method": "la-aciq", "bits": 4}
_EFFECTIVE = {"method": "effective", "bits": 4}

CANDIDATES = (
    *(_stored(f"rtn-{bits}", f"rounded to nearest at {bits} bits", bits=bits) for bits in BITS),
    _stored("aciq-4", "ACIQ at 4 bits", method="aciq", bits=4),
    _stored("la-aciq-4", "LA-ACIQ at 4 bits, κ_eff averaged over languages", **_LA_ACIQ),
    _stored("la-aciq-4-per-language", "LA-ACIQ at 4 bits, each language with its κ_eff", **_LA_ACIQ, separate=True),
    _stored("effective-4", "grids for the mean of the languages' inputs", **_EFFECTIVE),
    _stored("effective-4-per-language", "grids for each language's inputs", **_EFFECTIVE, separate=True),
    _stored("adaptive-4", "one table of scales per cluster of languages", **_ADAPTIVE),
    _as_large_as("adaptive-4", "effective", **_ADAPTIVE),
    _with_outliers(_stored("outliers-8", "outlier blocks at 8 bits, all others at 4", **_OUTLIERS)),
    _with_outliers(_as_large_as("outliers-8", "rtn", **_OUTLIERS)),
    *(_stored(f"keep-{share:g}", f"4 bits, the top {share:g} % in 16 bits", bits=4, keep=share) for share in KEPT),
    _as_large_as("keep-5", "rtn", **_KEPT_FIVE),
    _stored("mixed", "the top 5 % in 16 bits, attention at 8 bits, all else at 4", **_MIXED),
    _as_large_as("mixed", "rtn", **_MIXED),
)
