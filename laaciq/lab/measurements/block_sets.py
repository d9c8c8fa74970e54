"""Losses with three blocks in 16 bits and all others at 4 bits: every set of three, or with --quick a random sample and the theory's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from laaciq.lab.findings import NotApplicable
from laaciq.lab.measurements.bench import Bench, Measurement
from laaciq.options import WeightOptions
from laaciq.studies.block_sets import block_sets
from laaciq.studies.outcomes import Outcomes, outcomes
from laaciq.studies.protection import BlockSet
from laaciq.studies.set_losses import ProtectedSets
from laaciq.trials.estimate import StageCost
from laaciq.trials.losses import DRAWS

PROTECTED = 3
# Above this number of sets, and with --quick, a sample is measured.
EXHAUSTIVE, SAMPLED, QUICK_SAMPLED = 500, 200, 16
# With fewer blocks the theory's set is nearly all of them.
FEWEST_BLOCKS = 6


@dataclass(frozen=True)
class BlockSets:
    """`sets` in the order of `outcomes`; the first protects nothing. `sample` are places of sets that stand for all: random ones, or all."""

    blocks: int
    sets: list[BlockSet]
    sample: list[int]
    outcomes: Outcomes

    @property
    def published(self) -> BlockSet:
        """{0, 9, 11} of twelve blocks: the first, the last, and the one two before the last."""
        return published_set(self.blocks)

    @property
    def gates(self) -> dict[int, int]:
        """For each inner block, the place of the set of it, the first and the last block."""
        return {block: self.sets.index((0, block, self.blocks - 1)) for block in range(1, self.blocks - 1)}

    @property
    def exhaustive(self) -> bool:
        return len(self.sample) == len(block_sets(self.blocks, PROTECTED))


def published_set(blocks: int) -> BlockSet:
    return (0, blocks - 3, blocks - 1)


def chosen_sets(blocks: int, quick: bool, seed: int) -> tuple[list[BlockSet], list[int]]:
    """No protection, the sample, the theory's set, and every block between the first and the last."""
    every = block_sets(blocks, PROTECTED)
    size = QUICK_SAMPLED if quick else len(every) if len(every) <= EXHAUSTIVE else SAMPLED
    drawn = np.random.default_rng(seed).permutation(len(every))[: min(size, len(every))]
    sample = [every[place] for place in sorted(drawn)]
    gates = [(0, block, blocks - 1) for block in range(1, blocks - 1)]
    sets: list[BlockSet] = list(dict.fromkeys([(), *sample, published_set(blocks), *gates]))
    return sets, [sets.index(members) for members in sample]


def _blocks(bench: Bench) -> int:
    count = len(bench.session.costs.model.anatomy.block_names)
    if count < FEWEST_BLOCKS:
        raise NotApplicable(f"the model has {count} blocks", f"a model with at least {FEWEST_BLOCKS}")
    return count


def _measure(bench: Bench) -> BlockSets:
    blocks, session = _blocks(bench), bench.session
    sets, sample = chosen_sets(blocks, bench.quick, session.options.seed)
    texts = bench.sets_text
    original = session.original_losses(texts, part="lab sets")
    measured = ProtectedSets(session, WeightOptions(bits=4)).losses("lab sets", texts, sets)
    loss = {
        code: np.stack([losses.of(members) for members in sets]) - np.array(original[code].nll)
        for code, losses in measured.items()
    }
    tokens = {code: np.array(losses.tokens) for code, losses in measured.items()}
    found = outcomes(texts, loss, tokens, draws=DRAWS, seed=session.options.seed)
    return BlockSets(blocks, sets, sample, found)


def _cost(bench: Bench) -> StageCost:
    """Of as many whole passes as there are sets; shared prefixes save half of it."""
    session = bench.session
    try:
        sets, _ = chosen_sets(_blocks(bench), bench.quick, session.options.seed)
    except NotApplicable:
        return replace(session.costs.loading(), seconds=0.0)
    both = session.costs.measuring(bench.sets_sample)
    return replace(both, seconds=both.seconds / 4 * len(sets))


BLOCK_SETS = Measurement("block-sets", "losses with sets of three blocks in 16 bits, the others at 4", _measure, _cost)
