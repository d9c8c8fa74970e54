"""Interventions: one cause is set, all else stays equal, and losses are compared document by document. The difference is its effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from laaciq.corpus import Texts
from laaciq.engine.display import Displayed
from laaciq.evaluation.disparity import degradation_of
from laaciq.options import Bits, Cause, GridOptions, GroupSize, InterveneOptions
from laaciq.stats.estimate import Estimate
from laaciq.strict import StrictModel
from laaciq.studies.intervened import Pruned, Rescaled, rounded, rounded_plan, with_bits
from laaciq.studies.rescaling import Rescalable
from laaciq.studies.segmentation import split_session
from laaciq.studies.texts import require_documents
from laaciq.trials.candidate import Candidate
from laaciq.trials.estimate import StageCost
from laaciq.trials.losses import Losses
from laaciq.trials.measurement import Measurement
from laaciq.trials.session import Session

BASELINE = "unchanged"
# Pruning has the same mean loss as quantization if they differ by no more than this share, or after so many steps.
EQUAL_LOSS, MOST_STEPS = 0.02, 8
_FIRST_SHARE, _MOST_SHARE = 0.3, 0.9


class Level(StrictModel):
    """One value of the cause. `set_to` says which, in numbers: κ by block, tokens per byte, bits of a part, share of weights that are pruned.

    `degradation` is D by language, `loss` the mean over languages of ΔNLL per token, `per_byte` the same in bits per byte of text, which
    tokens do not change. `*_effect` are paired differences from the baseline, None for the baseline itself. `drift` is the largest change
    of a logit before quantization, as a share of the largest logit, where the function is to stay the same.
    """

    name: str
    set_to: dict[str, float]
    drift: float | None
    degradation: dict[str, Estimate]
    loss: Estimate
    per_byte: Estimate
    disparity: Estimate
    loss_effect: Estimate | None
    per_byte_effect: Estimate | None
    disparity_effect: Estimate | None


class Intervention(Displayed, StrictModel):
    """`levels` begin with the baseline: the model as it is, rounded to nearest."""

    version: Literal[1] = 1
    model: str
    texts: str
    do: Cause
    bits: Bits
    group_size: GroupSize
    symmetric: bool
    languages: list[str]
    not_served: list[str]
    levels: list[Level]

    def __getitem__(self, name: str) -> Level:
        return next(level for level in self.levels if level.name == name)


@dataclass(frozen=True)
class Measured:
    """A level before it is compared: its measurements by language."""

    name: str
    by_language: Mapping[str, Measurement]
    set_to: Mapping[str, float]
    drift: float | None = None


@dataclass(frozen=True)
class Trial:
    """A session, and the grid that everything is rounded to."""

    session: Session
    options: InterveneOptions

    @property
    def test(self) -> Texts:
        return self.session.split.test

    @property
    def validation(self) -> Texts:
        whole, most = self.session.split.validation, self.options.passages
        return whole if most is None else whole.spread(most)

    @property
    def grid(self) -> GridOptions:
        return self.options.group(GridOptions)

    def baseline(self) -> Candidate:
        return rounded(f"{self.grid.bits} bits", rounded_plan(self.session.original, self.grid))

    def levels(self) -> list[Measured]:
        setters: dict[Cause, Callable[[Trial], list[Measured]]] = {
            "kurtosis": _kurtosis,
            "tokens": _tokens,
            "bits": _bits,
            "pruning": _pruning,
        }
        return setters[self.options.do](self)

    def measured(self, candidates: Sequence[Candidate]) -> list[dict[str, Measurement]]:
        return self.session.losses_of_each(candidates, self.test)


def intervene(session: Session, options: InterveneOptions) -> Intervention:
    """The model under every level of the cause, on test text."""
    trial = Trial(session, options)
    require_documents(trial.test, "test", session.progress)
    session.announce(
        f"Setting {options.do} of {session.folder.name}, all else equal, and measuring {len(trial.test.languages)} languages "
        f"each time ({trial.test.name}).",
        [session.costs.loading(), *_costs(trial)],
    )
    return compared(trial.levels(), session, options)


def _costs(trial: Trial) -> list[StageCost]:
    """Of the original and of every level; at most, for pruning."""
    options, costs = trial.options, trial.session.costs
    levels = {
        "kurtosis": 2 + len(options.kurtosis),
        # Each with a pass of the original on the same tokens.
        "tokens": 1 + 2 * len(options.rates),
        "bits": 4 + len(costs.model.anatomy.block_names),
        "pruning": 2,
    }
    stages = [_passes(costs.measuring(trial.test), 1 + levels[options.do])]
    if options.do == "pruning":
        stages.append(_passes(costs.measuring(trial.validation), 2 + MOST_STEPS))
    return stages


def _passes(once: StageCost, passes: int) -> StageCost:
    """`once` has two: of the original and of a candidate."""
    return replace(once, seconds=once.seconds * passes / 2)


def _kurtosis(trial: Trial) -> list[Measured]:
    model, options = trial.session.original, trial.options
    rescalable = Rescalable(model, packed=trial.session.placement.packed)
    blocks = list(range(len(model.anatomy.block_names))) if options.blocks is None else list(options.blocks)
    powers = {"smallest κ": rescalable.equalised(blocks)}
    powers |= {f"κ = {target:g}": rescalable.powers(dict.fromkeys(blocks, target)) for target in options.kurtosis}
    drifts = {name: rescalable.drift(of_level) for name, of_level in powers.items()}
    plan = rounded_plan(model, trial.grid)
    # A name is part of a file's.
    candidates = [
        Rescaled(f"kurtosis {number}", tuple(of_level.items()), plan) for number, of_level in enumerate(powers.values())
    ]
    first, *others = trial.measured([trial.baseline(), *candidates])
    now = {f"block {block}": rescalable.blocks[block].kurtosis(1.0) for block in blocks}
    return [Measured(BASELINE, first, now)] + [
        Measured(
            name, found, {f"block {b}": rescalable.blocks[b].kurtosis(p) for b, p in powers[name].items()}, drifts[name]
        )
        for name, found in zip(powers, others, strict=True)
    ]


def _tokens(trial: Trial) -> list[Measured]:
    (first,) = trial.measured([trial.baseline()])
    levels = [Measured(BASELINE, first, _tokens_per_byte(first))]
    for rate in trial.options.rates:
        split = replace(trial, session=split_session(trial.session, rate))
        (found,) = split.measured([trial.baseline()])
        levels.append(Measured(f"rate {rate:g}", found, _tokens_per_byte(found)))
    return levels


def _tokens_per_byte(measured: Mapping[str, Measurement]) -> dict[str, float]:
    return {code: sum(m.tokens) / sum(m.bytes) for code, m in measured.items()}


def _bits(trial: Trial) -> list[Measured]:
    model, options = trial.session.original, trial.options
    plan, linears = rounded_plan(model, trial.grid), model.anatomy.linears
    parts = {
        f"block {block}": [linear.name for linear in linears if linear.block == block]
        for block in range(len(model.anatomy.block_names))
    }
    for component in ("attention", "feed-forward"):
        parts[component] = [linear.name for linear in linears if linear.component == component]
    parts = {name: members for name, members in parts.items() if members}
    plans = {name: with_bits(plan, members, options.to_bits) for name, members in parts.items()}
    set_to = dict.fromkeys(plans, float(options.to_bits))
    if any(matrix.obstacle is None for matrix in model.anatomy.token_matrices):
        plans["embeddings"] = rounded_plan(model, trial.grid, embeddings=True)
        set_to["embeddings"] = float(options.bits)
    first, *others = trial.measured([trial.baseline(), *(rounded(name, changed) for name, changed in plans.items())])
    return [Measured(BASELINE, first, {})] + [
        Measured(name, found, {name: set_to[name]}) for name, found in zip(plans, others, strict=True)
    ]


def _pruning(trial: Trial) -> list[Measured]:
    share = equal_share(trial.session, trial.validation, trial.baseline())
    first, pruned = trial.measured([trial.baseline(), pruned_to(share)])
    return [Measured(BASELINE, first, {}), Measured("pruned", pruned, {"share": share})]


def pruned_to(share: float) -> Pruned:
    return Pruned(f"pruned {share:.4f}", share)


def equal_share(session: Session, texts: Texts, quantized: Candidate, *, part: str = "validation") -> float:
    """The share of weights whose pruning loses as much as quantization, on average over the languages that are served. By false position on
    the logarithm of the loss, which is nearly linear in the share; by halves where that has no logarithm.
    """

    def loss(candidate: Candidate) -> float:
        measured = session.losses(candidate, texts, part=part)
        served = [m for m in measured.values() if m.served]
        return float(np.mean([m.loss.sum() / sum(m.tokens) for m in served]))

    target = loss(quantized)
    low, high = _Tried(0.0, 0.0), _Tried(_MOST_SHARE, np.inf)
    share, tried = _FIRST_SHARE, []
    for _ in range(MOST_STEPS):
        found = _Tried(share, loss(pruned_to(share)))
        tried.append(found)
        if abs(found.loss - target) <= EQUAL_LOSS * abs(target):
            break
        low, high = (low, found) if found.loss > target else (found, high)
        share = _between(low, high, target)
    return min(tried, key=lambda one: abs(one.loss - target)).share


class _Tried(NamedTuple):
    share: float
    loss: float


def _between(low: _Tried, high: _Tried, target: float) -> float:
    """Where a line through the logarithms of two losses meets the target, rounded, and well inside; else in the middle."""
    middle = (low.share + high.share) / 2
    if low.loss > 0 and np.isfinite(high.loss):
        steepness = np.log(high.loss / low.loss)
        middle = low.share + (high.share - low.share) * float(np.clip(np.log(target / low.loss) / steepness, 0.1, 0.9))
    return round(middle, 4)


def compared(levels: list[Measured], session: Session, options: InterveneOptions) -> Intervention:
    """Every level against the first."""
    served = [code for code, m in levels[0].by_language.items() if m.served]
    parallel, seed = session.split.test.parallel, session.options.seed

    def losses(level: Measured, *, by_byte: bool = False) -> Losses:
        chosen = {code: level.by_language[code] for code in served}
        return Losses.of(
            {code: m.loss / (np.log(2) if by_byte else 1) for code, m in chosen.items()},
            {code: m.bytes if by_byte else m.tokens for code, m in chosen.items()},
            {code: m.documents for code, m in chosen.items()},
            parallel=parallel,
            seed=seed,
        )

    first, first_by_byte = losses(levels[0]), losses(levels[0], by_byte=True)
    results = []
    for level in levels:
        here, by_byte, changed = losses(level), losses(level, by_byte=True), level is not levels[0]
        results.append(
            Level(
                name=level.name,
                set_to=dict(level.set_to),
                drift=level.drift,
                degradation={code: degradation_of(loss) for code, loss in here.by_language().items()},
                loss=here.mean(),
                per_byte=by_byte.mean(),
                disparity=here.disparity().estimate,
                loss_effect=here.mean_difference(first) if changed else None,
                per_byte_effect=by_byte.mean_difference(first_by_byte) if changed else None,
                disparity_effect=here.disparity_difference(first) if changed else None,
            )
        )
    return Intervention(
        model=session.folder.name,
        texts=session.split.test.name,
        do=options.do,
        languages=served,
        not_served=[code for code in levels[0].by_language if code not in served],
        levels=results,
        **options.model_dump(include=set(GridOptions.model_fields)),
    )
