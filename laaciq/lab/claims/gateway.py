"""Gateway blocks: which blocks to protect."""

from __future__ import annotations

import numpy as np

from laaciq.lab.claim import Claim
from laaciq.lab.document_halves import half_of, require_halves
from laaciq.lab.evidence import Evidence
from laaciq.lab.findings import Bars, Finding, TooFew
from laaciq.lab.language_rules import disparity_difference, disparity_ratio
from laaciq.lab.measurements.block_sets import BlockSets
from laaciq.lab.rules import Claimed, from_draws, holds, require_languages

NEAR_OPTIMAL = Claimed(statistic="share of sets with less disparity", threshold=0.10, side="below", claimed=0.01)
# 41 %, held against half of it.
REDUCTION = Claimed(statistic="disparity ratio", threshold=0.795, side="below", claimed=0.59)
BOTTLENECK = Claimed(statistic="share of blocks with less disparity", threshold=0.25, side="below", claimed=0.0)
NECESSARY = Claimed(statistic="disparity, best with both − best without", threshold=0.0, side="below", claimed=-0.01)


def _sets(evidence: Evidence) -> BlockSets:
    found: BlockSets = evidence["block-sets"]
    require_languages(len(found.outcomes.languages))
    return found


def _near_optimal(evidence: Evidence) -> Finding:
    found = _sets(evidence)
    place = found.sets.index(found.published)
    value, draws = _better(found, place, found.sample)
    if not found.exhaustive:
        draws = _of_all(draws, len([other for other in found.sample if other != place]))
    note = f"Among {len(found.sample)} sets of three blocks{'' if found.exhaustive else ', a random sample'}."
    return from_draws(value, draws, claim=NEAR_OPTIMAL, languages=len(found.outcomes.languages), note=note)


def _better(found: BlockSets, place: int, among: list[int]) -> tuple[float, np.ndarray]:
    """The share of other sets with less disparity than the set at `place`: observed, and by resample."""
    others = [other for other in among if other != place]
    observed, draws = found.outcomes.observed["disparity"], found.outcomes.draws["disparity"]
    return float((observed[others] < observed[place]).mean()), (draws[:, others] < draws[:, [place]]).mean(1)


def _of_all(draws: np.ndarray, count: int) -> np.ndarray:
    """The share among all sets, of which a random sample of `count` was measured: in each draw, a value from its distribution given the share
    in the sample and a uniform prior.
    """
    fewer = np.round(draws * count)
    return np.random.default_rng(0).beta(fewer + 1, count - fewer + 1)


def _reduction(evidence: Evidence) -> Finding:
    found = _sets(evidence)
    protected = found.outcomes.interventions[found.sets.index(found.published)]
    names = (f"blocks {', '.join(map(str, found.published))} in 16 bits", "all blocks at 4 bits")
    return disparity_ratio(protected, found.outcomes.interventions[0], claim=REDUCTION, names=names)


def _bottleneck(evidence: Evidence) -> Finding:
    found = _sets(evidence)
    varying = evidence.profile.only(found.outcomes.languages).fractions.var(0)[1:-1]
    block = 1 + int(varying.argmax())
    gates = found.gates
    value, draws = _better(found, gates[block], list(gates.values()))
    values = [found.outcomes.estimate("disparity", place) for place in gates.values()]
    plot = Bars(names=[f"0, {b}, {found.blocks - 1}" for b in gates], values=values, label="disparity")
    note = f"Block {block} has the largest variance of activation fractions between languages."
    return from_draws(value, draws, claim=BOTTLENECK, languages=len(found.outcomes.languages), plot=plot, note=note)


def _necessary(evidence: Evidence) -> Finding:
    """The best of many sets is too good on the text that it was chosen on: both are chosen on one half of the documents, and compared on the
    other.
    """
    found = _sets(evidence)
    gates = {0, found.blocks - 1}
    both = [place for place, members in enumerate(found.sets) if gates <= set(members)]
    without = [place for place in found.sample if not gates <= set(found.sets[place])]
    every = found.outcomes.interventions
    require_halves(every[0])
    best, other = (
        min(places, key=lambda place: float(np.ptp(np.expm1(half_of(every[place], 0).per_token))))
        for places in (both, without)
    )
    note = f"Chosen: {found.sets[best]} and {found.sets[other]}."
    finding = disparity_difference(half_of(every[best], 1), half_of(every[other], 1), claim=NECESSARY, note=note)
    if holds(finding) and not found.exhaustive:
        raise TooFew(
            f"of the sets without the first or the last block only {len(without)} were measured",
            "all of them: leave out --quick",
        )
    return finding


_PLACE = "Theory Development, Theory 3"
CLAIMS = (
    Claim(
        "gateway-near-optimal",
        "Grid search over all 220 layer combinations should find L0+L9+L11 near-optimal.",
        _PLACE,
        ("block-sets",),
        "Fewer than 10 % of all sets of three blocks have less disparity than {0, n−3, n−1} in 16 bits, the others at 4.",
        _near_optimal,
    ),
    Claim(
        "gateway-reduction",
        "Protecting layers L0, L9, L11 reduces disparity by 41 %.",
        _PLACE,
        ("block-sets",),
        "Disparity with {0, n−3, n−1} in 16 bits, over that with all at 4, lies below 0.795 (half of the claimed decrease).",
        _reduction,
    ),
    Claim(
        "gateway-bottleneck",
        "The optimal S* consists of the input layer, the layer with maximum cross-lingual variance, and the output layer.",
        _PLACE,
        ("profile", "block-sets"),
        "Of all sets {0, l, n−1}, fewer than a quarter have less disparity than that with the block of largest variance of ā_l(λ).",
        _bottleneck,
    ),
    Claim(
        "gateway-necessary",
        "Any disparity-minimizing protection scheme must include the first and last layers.",
        "Theory Development, Theorem 2",
        ("block-sets",),
        "The best set with the first and the last block has less disparity than the best without one of them; both are chosen on one half of "
        "the documents and compared on the other.",
        _necessary,
    ),
)
