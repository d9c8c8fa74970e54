"""Bit sweep: D(λ) by bits, the fewest bits at which a language stays within a tolerance, and B*, where disparity exceeds the noise floor."""

from __future__ import annotations

from itertools import takewhile
from typing import Literal

from laaciq.engine.display import Displayed
from laaciq.engine.store import key_of
from laaciq.evaluation.results import Disparity, Evaluation, Summary
from laaciq.evaluation.trial import evaluate_trial
from laaciq.options import Bits, GroupSize, SweepOptions, WeightOptions
from laaciq.planning.rules import make_plans
from laaciq.stats.estimate import Estimate
from laaciq.strict import StrictModel
from laaciq.trials.candidate import TextFreePlan
from laaciq.trials.session import Session


class Sweep(Displayed, StrictModel):
    """All linear layers of the blocks at each number of bits B, ascending.

    `degradation[language][B]` is D(λ), None if the language collapsed. `tolerated_bits` is the smallest B such that, there and at every
    larger B of the sweep, the upper end of D's interval is at most `tolerance`; None if there is none. `disparity` is None at a B where
    fewer than two languages are judged. `critical_bits` is B*, the largest B such that, there and at every smaller one, disparity is beyond
    noise; None if there is none. `summary` counts the languages that collapsed. Languages that the original does not serve are listed and
    otherwise left out.
    """

    version: Literal[1] = 1
    model: str
    texts: str
    method: str
    group_size: GroupSize
    symmetric: bool
    tolerance: float
    bits: tuple[Bits, ...]
    languages: list[str]
    not_served: list[str]
    degradation: dict[str, dict[int, Estimate | None]]
    tolerated_bits: dict[str, int | None]
    disparity: dict[int, Disparity | None]
    critical_bits: int | None
    summary: dict[int, Summary]


def sweep(session: Session, options: SweepOptions) -> Sweep:
    """The blocks quantized to each number of bits, and the loss of every language on test text."""
    test = session.split.test
    session.announce(
        f"Quantizing {session.folder.name} to {', '.join(map(str, options.bits))} bits and measuring {len(test.languages)} languages "
        f"each time ({test.name}).",
        [session.costs.loading(), *[session.costs.measuring(test)] * len(options.bits)],
    )
    measured = session.measure_each([_candidate(session, options, bits) for bits in options.bits], test)
    evaluations = {
        bits: evaluate_trial(session, losses, test, quantized=f"{options.method}, {bits} bits")
        for bits, losses in zip(options.bits, measured, strict=True)
    }
    return _result(evaluations, options)


def _candidate(session: Session, options: SweepOptions, bits: int) -> TextFreePlan:
    quantizing = WeightOptions(
        method=options.method, bits=bits, group_size=options.group_size, symmetric=options.symmetric
    )
    plan = make_plans(session.original.anatomy, quantizing).first
    return TextFreePlan(f"{bits} bits", key_of("plan", plan.model_dump()), plan)


def _result(evaluations: dict[int, Evaluation], options: SweepOptions) -> Sweep:
    # The original decides which languages are served, so all numbers of bits agree.
    first = next(iter(evaluations.values()))
    served = [result.language for result in first.languages if result.served]
    degradation = {code: {bits: result[code].degradation for bits, result in evaluations.items()} for code in served}
    disparity = {bits: result.disparity for bits, result in evaluations.items()}
    return Sweep(
        model=first.original,
        texts=first.texts,
        languages=served,
        not_served=first.summary.not_served,
        degradation=degradation,
        tolerated_bits={code: tolerated_bits(by_bits, options.tolerance) for code, by_bits in degradation.items()},
        disparity=disparity,
        critical_bits=critical_bits(disparity),
        summary={bits: result.summary for bits, result in evaluations.items()},
        **options.model_dump(include={"bits", "tolerance", "group_size", "symmetric", "method"}),
    )


def critical_bits(disparity: dict[int, Disparity | None]) -> int | None:
    """B*, the largest B such that, there and at every smaller judged B, disparity is beyond noise.

    A single B is beyond noise by chance in one of twenty sweeps; a run of them is not.
    """
    judged = {bits: result for bits, result in sorted(disparity.items()) if result is not None}
    return max(takewhile(lambda bits: judged[bits].beyond_noise, judged), default=None)


def tolerated_bits(degradation: dict[int, Estimate | None], tolerance: float) -> int | None:
    """The smallest B such that, there and at every larger B, the upper end of D's interval is at most `tolerance`."""

    def tolerated(bits: int) -> bool:
        result = degradation[bits]
        return result is not None and result.high <= tolerance

    return min(takewhile(tolerated, sorted(degradation, reverse=True)), default=None)
