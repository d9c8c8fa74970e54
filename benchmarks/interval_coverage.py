"""How often the general 95 % intervals of `laaciq.stats` cover the true value, by simulation.

    python -m benchmarks.interval_coverage --simulations 2000

Intervals of losses, of the worst language and of disparity: `python -m benchmarks.coverage`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import stats

from laaciq.stats.bootstrap import Kind, bootstrap
from laaciq.stats.correlation import partial, pearson, spearman
from laaciq.stats.effect_size import cliffs_delta, cohens_d, hedges_g
from laaciq.stats.mediation import mediate
from laaciq.stats.meta_analysis import Interval, Method, pool_effects
from laaciq.stats.mixed_effects import random_intercepts

SIMULATIONS = 1000
# Of bootstrap draws, fewer than by default: the Monte Carlo error of an end hardly moves coverage.
DRAWS = 300

# One simulation: the two ends of its interval.
Simulation = Callable[[np.random.Generator], tuple[float, float]]


@dataclass(frozen=True)
class Case:
    interval: str
    data: str
    size: str
    truth: float
    simulate: Simulation


def cases() -> Iterator[Case]:
    kinds: list[Kind] = ["percentile", "basic", "bca", "studentized"]
    for kind in kinds:
        for n in (10, 30):
            yield Case(f"bootstrap, {kind}", "mean, exponential", f"{n} rows", 1.0, _mean(kind, n))
    for within in (False, True):
        name = "hierarchical" if within else "clustered"
        yield Case(f"bootstrap, {name}, percentile", "mean, ICC 0.5", "12 clusters of 5", 0.0, _clustered(within))
    for n in (12, 36):
        yield Case("Pearson, percentile", "normal, ρ = 0.5", f"{n} pairs", 0.5, _pearson(n))
        yield Case("Spearman", "normal, ρ = 0.5", f"{n} pairs", 6 / math.pi * math.asin(0.25), _spearman(n))
        yield Case("partial", "normal, ρ = 0.5, 1 control", f"{n} pairs", 0.5, _partial(n))
    delta = 2 * float(stats.norm.cdf(1 / math.sqrt(2))) - 1
    for n, m in ((7, 25), (16, 16)):
        for name, effect, truth in (
            ("Cohen's d", cohens_d, 1.0),
            ("Hedges' g", hedges_g, 1.0),
            ("Cliff's δ", cliffs_delta, delta),
        ):
            yield Case(name, "normal, 1 apart", f"{n} and {m}", truth, _effect(effect, n, m))
    ways: list[tuple[Method, Interval]] = [
        ("dersimonian-laird", "normal"),
        ("reml", "normal"),
        ("reml", "hartung-knapp"),
    ]
    for k in (5, 20):
        for method, interval in ways:
            yield Case(
                f"meta-analysis, {method}, {interval}", "τ² = v", f"{k} studies", 0.3, _pooled(method, interval, k)
            )
    for n in (12, 36):
        for kind in kinds[::2]:
            yield Case(f"mediation, {kind}", "a = b = 0.6", f"{n} rows", 0.36, _mediation(kind, n))
    for families, members in ((6, 5), (12, 3)):
        for between in (True, False):
            where = "between" if between else "within"
            size = f"{families} families of {members}"
            yield Case(
                f"mixed effects, slope {where} families", "ICC 0.5", size, 1.0, _slope(families, members, between)
            )


def _mean(kind: Kind, n: int) -> Simulation:
    def simulate(random: np.random.Generator) -> tuple[float, float]:
        sample = random.exponential(size=n)
        interval = bootstrap(sample, lambda rows: float(rows.mean()), kind=kind, draws=DRAWS, seed=_seed(random))
        return interval.low, interval.high

    return simulate


def _clustered(within: bool) -> Simulation:
    clusters = np.repeat(np.arange(12), 5)

    def simulate(random: np.random.Generator) -> tuple[float, float]:
        sample = np.repeat(random.normal(size=12), 5) + random.normal(size=60)
        interval = bootstrap(
            sample, lambda rows: float(rows.mean()), kind="percentile", clusters=clusters, within_clusters=within,
            draws=DRAWS, seed=_seed(random),
        )  # fmt: skip
        return interval.low, interval.high

    return simulate


def _normal_pairs(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    x, z = random.normal(size=(2, n))
    return x, 0.5 * x + math.sqrt(0.75) * z


def _pearson(n: int) -> Simulation:
    def simulate(random: np.random.Generator) -> tuple[float, float]:
        result = pearson(*_normal_pairs(random, n), draws=DRAWS, seed=_seed(random))
        return result.low, result.high

    return simulate


def _spearman(n: int) -> Simulation:
    def simulate(random: np.random.Generator) -> tuple[float, float]:
        result = spearman(*_normal_pairs(random, n))
        return result.low, result.high

    return simulate


def _partial(n: int) -> Simulation:
    def simulate(random: np.random.Generator) -> tuple[float, float]:
        (x, y), z = _normal_pairs(random, n), random.normal(size=n)
        result = partial(x + z, y + z, z)
        return result.low, result.high

    return simulate


def _effect(effect: Callable[..., object], n: int, m: int) -> Simulation:
    def simulate(random: np.random.Generator) -> tuple[float, float]:
        result = effect(random.normal(1, 1, n), random.normal(0, 1, m))
        return result.low, result.high  # type: ignore[attr-defined]

    return simulate


def _pooled(method: Method, interval: Interval, k: int) -> Simulation:
    def simulate(random: np.random.Generator) -> tuple[float, float]:
        variances = random.uniform(0.05, 0.15, k)
        effects = 0.3 + np.sqrt(0.1 + variances) * random.normal(size=k)
        result = pool_effects(effects, variances, method=method, interval=interval)
        return result.low, result.high

    return simulate


def _mediation(kind: Kind, n: int) -> Simulation:
    def simulate(random: np.random.Generator) -> tuple[float, float]:
        cause, first, second = random.normal(size=(3, n))
        mediator = 0.6 * cause + first
        chain = mediate(cause, [mediator], 0.6 * mediator + second, kind=kind, draws=DRAWS, seed=_seed(random)).chain
        return chain.low, chain.high

    return simulate


def _slope(families: int, members: int, between: bool) -> Simulation:
    family = np.repeat(np.arange(families), members)

    def simulate(random: np.random.Generator) -> tuple[float, float]:
        x = random.normal(size=families)[family] if between else random.normal(size=len(family))
        y = x + random.normal(size=families)[family] + random.normal(size=len(family))
        slope = random_intercepts(y, family, x).coefficients[1]
        return slope.low, slope.high

    return simulate


def _seed(random: np.random.Generator) -> int:
    return int(random.integers(2**31))


def coverage(case: Case, simulations: int) -> float:
    covered = 0
    for number in range(simulations):
        low, high = case.simulate(np.random.default_rng([number, len(case.interval)]))
        covered += low <= case.truth <= high
    return covered / simulations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    simulations = parser.parse_args().simulations
    print("| interval | data | size | coverage |\n|---|---|---|---:|")
    for case in cases():
        print(f"| {case.interval} | {case.data} | {case.size} | {coverage(case, simulations):.3f} |", flush=True)
    print(
        f"\n{simulations:,} simulations each; at 0.95 the Monte Carlo standard error is {math.sqrt(0.95 * 0.05 / simulations):.3f}."
    )


if __name__ == "__main__":
    main()
