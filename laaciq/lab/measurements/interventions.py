"""Losses under interventions: κ set at the same function, the same text in more tokens, other bits in some blocks, pruning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from laaciq.errors import BadOption
from laaciq.lab.evidence import ProfileTable, profile_table
from laaciq.lab.findings import NotApplicable
from laaciq.lab.measurements.bench import Bench, Measurement
from laaciq.options import GridOptions
from laaciq.studies.intervened import Pruned, Rescaled, rounded, rounded_plan, with_bits
from laaciq.studies.intervention import MOST_STEPS, equal_share
from laaciq.studies.rescaling import Rescalable
from laaciq.studies.segmentation import split_session
from laaciq.studies.texts import shortened
from laaciq.trials.estimate import StageCost
from laaciq.trials.losses import Losses
from laaciq.trials.session import Session

# As in BLOOM, whose largest is 164.
PLANTED_KURTOSIS = 150.0
# BLOOM's outlier layers, of 24.
_BLOOM, _BLOOM_LAYERS = (5, 21, 22), 24
# Probability that a token is split.
SPLIT_RATE = 0.3
# Validation text on which pruning is made as lossy as quantization: passages per language, and tokens of each.
_PASSAGES, _TOKENS = 4, 32


def outlier_places(blocks: int) -> list[int]:
    """The blocks at the depth of BLOOM's outlier layers."""
    return sorted({place * blocks // _BLOOM_LAYERS for place in _BLOOM})


def _planted_places(bench: Bench) -> list[int]:
    return outlier_places(len(bench.table.kurtosis))


def _most_alike(bench: Bench) -> list[int]:
    """The block whose share of activation norms has the smallest range over languages."""
    return [int(np.ptp(bench.table.fractions, axis=0).argmin())]


def _nowhere(bench: Bench) -> list[int]:
    return []


def _rescaled(
    bench: Bench, name: str, bits: int, planted: Callable[[Bench], Sequence[int]], *, equalised: bool
) -> Losses:
    """κ = 150 in the `planted` blocks, and in the others the smallest possible if they are `equalised`; then all rounded to nearest."""
    model = bench.session.original
    try:
        rescalable = Rescalable(model, packed=bench.session.placement.packed)
        powers = rescalable.equalised(list(rescalable.blocks)) if equalised else {}
        powers |= rescalable.powers(dict.fromkeys(planted(bench), PLANTED_KURTOSIS))
        rescalable.drift(powers)
    except BadOption as refusal:
        raise NotApplicable(
            str(refusal), "a model whose norms are read by linear layers alone, in float32"
        ) from refusal
    plan = rounded_plan(model, GridOptions(bits=bits))
    return bench.losses(Rescaled(f"lab/{name}", tuple(powers.items()), plan))


def _equalised_kurtosis(bench: Bench) -> float:
    """The largest κ of a block when all are as small as the same function allows."""
    blocks = Rescalable(bench.session.original).blocks
    smallest = {block: rescaling.kurtosis(rescaling.reach[0]) for block, rescaling in blocks.items()}
    return max(smallest.get(block, float(kurtosis)) for block, kurtosis in enumerate(bench.table.kurtosis))


def _kurtosis(
    name: str, describes: str, bits: int, planted: Callable[[Bench], Sequence[int]], *, equalised: bool = False
) -> Measurement:
    return Measurement(
        name,
        f"losses at {bits} bits: {describes}",
        partial(_rescaled, name=name, bits=bits, planted=planted, equalised=equalised),
    )


def _with_bits(bench: Bench, name: str, places: Callable[[int], Sequence[int]]) -> Losses:
    """4 bits, and 8 in some blocks."""
    model = bench.session.original
    chosen = set(places(len(model.anatomy.block_names)))
    tensors = [linear.name for linear in model.anatomy.linears if linear.block in chosen]
    return bench.losses(rounded(f"lab/{name}", with_bits(rounded_plan(model, GridOptions()), tensors, 8)))


def ends(blocks: int) -> list[int]:
    return [0, blocks - 1]


def middle(blocks: int) -> list[int]:
    """Two blocks as far as possible from the ends."""
    return [(blocks - 1) // 2, blocks // 2] if blocks % 2 == 0 else [blocks // 2 - 1, blocks // 2]


def _split(bench: Bench, *, but_english: bool = False) -> Session:
    try:
        return split_session(bench.session, SPLIT_RATE, spared="eng" if but_english else None)
    except BadOption as refusal:
        raise NotApplicable(str(refusal), "a model with byte-pair encoding or unigrams") from refusal


def _split_losses(bench: Bench) -> Losses:
    """Of the languages that are served in usual tokens, on the same passages."""
    candidate = rounded("lab/split", rounded_plan(bench.session.original, GridOptions()))
    return bench.losses_of(_split(bench).losses(candidate, bench.test))


def _split_profile(bench: Bench) -> ProfileTable:
    """English, with which all others are aligned, stays as it is."""
    return profile_table(_split(bench, but_english=True).profile(bench.profiled), bench.served, bench.exposure)


def _pruned(bench: Bench) -> Losses:
    session = bench.session
    validation = session.split.validation.select(bench.served)
    texts = shortened(session.original, validation, passages=_PASSAGES, tokens=_TOKENS)
    baseline = rounded("lab/rounded", rounded_plan(session.original, GridOptions()))
    share = equal_share(session, texts, baseline, part="validation")
    return bench.losses(Pruned("lab/pruned", share))


def _pruning_cost(bench: Bench) -> StageCost:
    """At most, with the steps that find the share."""
    test = bench.losses_cost()
    validation = bench.session.split.validation.spread(_PASSAGES)
    step = bench.session.costs.measuring(validation).seconds / 2
    return replace(test, seconds=test.seconds + (2 + MOST_STEPS) * step)


def _weights_cost(bench: Bench) -> StageCost:
    return replace(bench.losses_cost(), seconds=0.0)


def _split_cost(bench: Bench) -> StageCost:
    """The original reads the split text too, which is about half as long again."""
    once = bench.losses_cost()
    return replace(once, seconds=3 * once.seconds)


INTERVENTIONS = (
    Measurement(
        "equalised-kurtosis",
        "the largest κ left where all are as small as possible",
        _equalised_kurtosis,
        _weights_cost,
    ),
    _kurtosis("equalised-4", "κ of every block as small as the same function allows", 4, _nowhere, equalised=True),
    _kurtosis("planted-4", "κ = 150 in three blocks at the depth of BLOOM's", 4, _planted_places),
    _kurtosis("planted-8", "κ = 150 in three blocks at the depth of BLOOM's", 8, _planted_places),
    _kurtosis(
        "planted-alike",
        "κ = 150 in the block that languages use most alike, κ of all others as small as possible",
        4,
        _most_alike,
        equalised=True,
    ),
    Measurement("ends-8", "losses: 4 bits, first and last block at 8", partial(_with_bits, name="ends-8", places=ends)),
    Measurement(
        "middle-8", "losses: 4 bits, two middle blocks at 8", partial(_with_bits, name="middle-8", places=middle)
    ),
    Measurement("split-tokens", "losses at 4 bits: the same text in more tokens", _split_losses, _split_cost),
    Measurement(
        "split-profile",
        "the profile on the same text in more tokens, but for English",
        _split_profile,
        Bench.profile_cost,
    ),
    Measurement("pruned", "losses: pruned by magnitude, as lossy as 4 bits on average", _pruned, _pruning_cost),
)
