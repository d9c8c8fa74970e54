"""Gateway search: which few blocks, kept in 16 bits, help the worst-off language most.

The theory names the first, the last and one block in between (its case is {0, 9, 11}). This study tries every set. Sets are chosen on
validation text. The best sets, the theory's and no protection are then measured on test text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from scipy.stats import spearmanr

from laaciq.corpus import Texts
from laaciq.engine.display import Displayed
from laaciq.errors import BrokenTexts
from laaciq.options import Bits, GatewayOptions, GridOptions, GroupSize, WeightOptions
from laaciq.stats.estimate import Estimate
from laaciq.strict import StrictModel
from laaciq.studies.block_sets import best_sets, block_sets, predicted_worst, set_count
from laaciq.studies.outcomes import Measure, Outcomes, Rank, outcomes
from laaciq.studies.protection import BlockSet
from laaciq.studies.set_losses import ProtectedSets, SetLosses
from laaciq.studies.texts import require_documents, shortened
from laaciq.trials.losses import DRAWS
from laaciq.trials.measurement import PassageLosses
from laaciq.trials.session import Session

# Most text per language: 320 tokens for the choice and 1,920 for the report.
VALIDATION_PASSAGES, TEST_PASSAGES, PASSAGE_TOKENS = 10, 60, 32
# Up to this many sets all are measured; above it the additive model proposes CANDIDATES.
EXHAUSTIVE, CANDIDATES = 500, 20
# Number of best sets to measure on test text.
REPORTED = 3
# The set that the theory names, for a model of twelve blocks.
PUBLISHED_SET = (0, 9, 11)
_RANKED: tuple[Measure, ...] = ("worst", "disparity")


class MeasuredSet(StrictModel):
    """One set of protected blocks on validation text: ΔNLL per token of the worst language, max D − min D, mean ΔNLL; the additive model's
    prediction of the worst; bits per weight in the blocks, and how many times smaller the model is than in 16 bits.
    """

    blocks: BlockSet
    worst: float
    worst_language: str
    disparity: float
    mean: float
    predicted_worst: float
    bits_per_weight: float
    compression: float


class ReportedSet(StrictModel):
    """One set on test text. `names` say why it is listed. Ranks are those on validation text, None if nothing is protected. `behind_best`
    is its worst ΔNLL minus that of the best set, paired.
    """

    names: list[str]
    blocks: BlockSet
    rank: Rank | None
    disparity_rank: Rank | None
    worst: Estimate
    worst_language: str
    disparity: Estimate
    mean: Estimate
    behind_best: Estimate
    bits_per_weight: float
    compression: float


class Gateway(Displayed, StrictModel):
    """Sets of `protect` blocks of the model's `blocks`: `sets` on validation text, best first by worst loss, and `tested` on test text.

    `possible` is the number of all sets. If `sets` are fewer, they are the additive model's best and the theory's, and ranks are among
    them. `best_share[measure][block]` is the share of resamples in which the best set by the measure, "worst" or "disparity", contains the
    block. `additive_correlation` is Spearman's, between predicted and measured worst loss; None with fewer than three sets or if all are
    equal. Languages that the original does not serve are listed and otherwise left out.
    """

    version: Literal[1] = 1
    model: str
    texts: str
    method: str
    bits: Bits
    group_size: GroupSize
    symmetric: bool
    protect: int
    blocks: int
    possible: int
    languages: list[str]
    not_served: list[str]
    validation_tokens: int
    test_tokens: int
    sets: list[MeasuredSet]
    best_share: dict[Measure, list[float]]
    additive_correlation: float | None
    tested: list[ReportedSet]

    @property
    def exhaustive(self) -> bool:
        return len(self.sets) == self.possible

    def best(self, measure: Measure = "worst") -> MeasuredSet:
        return min(self.sets, key=lambda measured: getattr(measured, measure))


def gateway(session: Session, options: GatewayOptions, *, exhaustive: int = EXHAUSTIVE) -> Gateway:
    """The gateway study: all blocks except a set of `options.protect` are quantized, for every set if there are at most `exhaustive`, else
    for the best sets by an additive model.

    For every language the first 32 tokens of 10 validation and 60 test passages are read.
    """
    session.left_alone()  # refused at once, before anything is measured
    model, seed = session.original, session.options.seed
    count = len(model.anatomy.block_names)
    possible = set_count(count, options.protect)
    quantizing = WeightOptions(**options.model_dump(include={*GridOptions.model_fields, "method"}))
    candidates = ProtectedSets(session, quantizing)
    choosing = _read(session, session.split.validation, VALIDATION_PASSAGES, "validation")
    reporting = _read(session, session.split.test, TEST_PASSAGES, "test")

    original = session.original_losses(choosing, part="validation")
    served = [code for code, losses in original.items() if losses.bits_per_byte <= session.options.served_bound]
    if not served:
        raise BrokenTexts(
            f"no language has {session.options.served_bound:g} bits per byte or less: raise --served-bound"
        )
    not_served = [code for code in choosing.languages if code not in served]
    choosing, reporting = choosing.select(served), reporting.select(served)
    singles: list[BlockSet] = [(), *block_sets(count, 1)]
    tried = block_sets(count, options.protect) if possible <= exhaustive else block_sets(count, 1)[:1] * 2 * CANDIDATES
    session.announce(
        f"Measuring {len(tried)} sets of {options.protect} blocks of {session.folder.name} in {len(served)} languages.",
        [
            session.costs.loading(),
            candidates.cost(choosing, singles),
            candidates.cost(choosing, tried),
            candidates.cost(reporting, tried[: REPORTED + 4]),
        ],
    )
    alone = _outcomes(choosing, original, candidates.losses("single blocks", choosing, singles), singles, seed).loss
    unprotected, gains = alone[0], (alone[0] - alone[1:]).T
    sets = (
        block_sets(count, options.protect)
        if possible <= exhaustive
        else _candidates(unprotected, gains, options.protect)
    )
    measured = candidates.losses("sets of blocks", choosing, sets)
    chosen = _outcomes(choosing, original, measured, sets, seed)

    names = _names(chosen, sets, count)
    original = session.original_losses(reporting, part="test")
    tested = candidates.losses("chosen sets", reporting, list(names))
    reported = _outcomes(reporting, original, tested, list(names), seed)
    predicted = predicted_worst(np.array(sets), unprotected, gains)
    return Gateway(
        model=session.folder.name,
        texts=session.split.test.name,
        blocks=count,
        possible=possible,
        languages=served,
        not_served=not_served,
        validation_tokens=sum(sum(losses.tokens) for losses in measured.values()),
        test_tokens=sum(sum(losses.tokens) for losses in tested.values()),
        sets=_measured_sets(candidates, chosen, sets, predicted),
        best_share={measure: _best_share(chosen, measure, sets, count) for measure in _RANKED},
        additive_correlation=_correlation(predicted, chosen.observed["worst"]),
        tested=_reported_sets(candidates, chosen, sets, reported, names),
        protect=options.protect,
        **quantizing.model_dump(include={*GridOptions.model_fields, "method"}),
    )


def _read(session: Session, texts: Texts, passages: int, part: str) -> Texts:
    few = shortened(session.original, texts, passages=passages, tokens=PASSAGE_TOKENS)
    require_documents(few, part, session.progress)
    return few


def _outcomes(
    texts: Texts,
    original: Mapping[str, PassageLosses],
    losses_by_language: dict[str, SetLosses],
    sets: list[BlockSet],
    seed: int,
) -> Outcomes:
    loss = {
        code: np.stack([losses.of(protected) for protected in sets]) - np.array(original[code].nll)
        for code, losses in losses_by_language.items()
    }
    tokens = {code: np.array(losses.tokens) for code, losses in losses_by_language.items()}
    return outcomes(texts, loss, tokens, draws=DRAWS, seed=seed)


def _candidates(unprotected: np.ndarray, gains: np.ndarray, protect: int) -> list[BlockSet]:
    """The additive model's best sets, its best with first and last block, and the theory's."""
    blocks = gains.shape[1]
    sets = best_sets(unprotected, gains, protect, count=CANDIDATES)
    if protect > 2:
        inner = best_sets(
            unprotected - gains[:, [0, -1]].sum(1), gains[:, 1:-1], protect - 2, count=min(CANDIDATES, blocks - 2)
        )
        sets += [(0, *(block + 1 for block in blocks_between), blocks - 1) for blocks_between in inner]
    elif protect == 2:
        sets.append((0, blocks - 1))
    if protect == len(PUBLISHED_SET) and blocks > max(PUBLISHED_SET):
        sets.append(PUBLISHED_SET)
    return list(dict.fromkeys(sets))


def _names(chosen: Outcomes, sets: list[BlockSet], blocks: int) -> dict[BlockSet, list[str]]:
    """The sets to measure on test text, with the reasons."""
    names: dict[BlockSet, list[str]] = {}
    by_rank = sorted(range(len(sets)), key=lambda index: chosen.observed["worst"][index])
    for place, index in enumerate(by_rank[:REPORTED]):
        names[sets[index]] = ["best"] if place == 0 else []
    names.setdefault(sets[chosen.best("disparity")], []).append("least disparity")
    if gates := [index for index, blocks_of_set in enumerate(sets) if {0, blocks - 1} <= set(blocks_of_set)]:
        names.setdefault(sets[chosen.best("worst", gates)], []).append("first, best, last")
    if PUBLISHED_SET in sets:
        names.setdefault(PUBLISHED_SET, []).append("published")
    return {**names, (): ["none"]}


def _measured_sets(
    candidates: ProtectedSets, chosen: Outcomes, sets: list[BlockSet], predicted: np.ndarray
) -> list[MeasuredSet]:
    measured = []
    for index, protected in enumerate(sets):
        size = candidates.plan(protected).size
        measured.append(
            MeasuredSet(
                blocks=protected,
                worst=chosen.observed["worst"][index],
                worst_language=chosen.worst_language(index),
                disparity=chosen.observed["disparity"][index],
                mean=chosen.observed["mean"][index],
                predicted_worst=predicted[index],
                bits_per_weight=size.block_bits_per_weight,
                compression=size.compression,
            )
        )
    return sorted(measured, key=lambda result: result.worst)


def _best_share(chosen: Outcomes, measure: Measure, sets: list[BlockSet], blocks: int) -> list[float]:
    best = chosen.best_draws(measure)
    held = np.array([[block in protected for block in range(blocks)] for protected in sets])
    return held[best].mean(0).tolist()


def _correlation(predicted: np.ndarray, measured: np.ndarray) -> float | None:
    if len(measured) < 3 or not np.ptp(predicted) or not np.ptp(measured):
        return None
    return float(spearmanr(predicted, measured)[0])


def _reported_sets(
    candidates: ProtectedSets,
    chosen: Outcomes,
    sets: list[BlockSet],
    reported: Outcomes,
    names: dict[BlockSet, list[str]],
) -> list[ReportedSet]:
    reported_sets = []
    for index, (protected, reasons) in enumerate(names.items()):
        size = candidates.plan(protected).size
        place = sets.index(protected) if protected else None
        reported_sets.append(
            ReportedSet(
                names=reasons,
                blocks=protected,
                rank=None if place is None else chosen.rank("worst", place),
                disparity_rank=None if place is None else chosen.rank("disparity", place),
                worst=reported.estimate("worst", index),
                worst_language=reported.worst_language(index),
                disparity=reported.estimate("disparity", index),
                mean=reported.estimate("mean", index),
                # The best set is the first.
                behind_best=reported.difference("worst", index, 0),
                bits_per_weight=size.block_bits_per_weight,
                compression=size.compression,
            )
        )
    return reported_sets
