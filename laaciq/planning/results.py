"""The `Planning`: the chosen plan, and how it was chosen. Written to disk and read back without loss."""

from __future__ import annotations

from typing import Literal

import numpy as np

from laaciq.options import Effort, Objective
from laaciq.quantization.plan import Plan
from laaciq.strict import StrictModel
from laaciq.trials.measurement import Measurement


class PredictedLosses(StrictModel):
    """ΔNLL per token for every tensor group, format and language."""

    losses: list[list[list[float]]]


class PlanLosses(StrictModel):
    """Losses of a plan on validation text, along the planning's languages, in nats per token: KL(original ‖ quantized), and ΔNLL."""

    divergence: list[float]
    nll_increase: list[float]

    @classmethod
    def of(cls, measurements: list[Measurement]) -> PlanLosses:
        tokens = np.array([sum(m.tokens) for m in measurements])
        return cls(
            divergence=(np.array([sum(m.kl or []) for m in measurements]) / tokens).tolist(),
            nll_increase=(np.array([m.loss.sum() for m in measurements]) / tokens).tolist(),
        )


class Probe(StrictModel):
    """Predicted and measured losses by language of a plan that the predictions are scaled by: a random plan or the first."""

    predicted: list[float]
    measured: PlanLosses


class Round(StrictModel):
    """One plan that was quantized and measured on validation text; `weights` and `losses` are along the planning's languages."""

    weights: list[float]
    predicted: list[float]
    losses: list[float]
    bits_per_weight: float
    value: float


class FrontPoint(StrictModel):
    """The best predicted plan of one size."""

    bits_per_weight: float
    worst: float
    disparity: float


class Agreement(StrictModel):
    """How well predicted losses agree with measured ones over random plans and languages: r of their logarithms, None with fewer than
    three pairs of them, and the median of |measured / predicted − 1| after fitting the languages' scales.
    """

    r: float | None
    error: float


class Planning(StrictModel):
    """`gap` is between the predicted objective and the bound that HiGHS proved; `chosen` is the round whose plan this is.

    A language's loss on validation text is its divergence, KL(original ‖ quantized) in nats per token, times `nll_per_kl`: the rise of NLL
    per nat of divergence. Divergence varies far less between passages than the rise itself, so few passages suffice to compare rounds; the
    ratio of the two in a language hardly depends on the plan. `scale` is measured over predicted loss, by language. No text of `held_out`
    languages was read. `timed_out`: a time limit stopped the solver, so that another plan may come out on another machine.
    """

    version: Literal[3] = 3
    plan: Plan
    objective: Objective
    effort: Effort
    languages: list[str]
    held_out: list[str]
    nll_per_kl: list[float]
    scale: list[float]
    gap: float
    timed_out: bool
    rounds: list[Round]
    chosen: int
    probes: list[Probe]
    agreement: Agreement
    front: list[FrontPoint]
