"""Gateway search: which few blocks, kept in 16 bits, help the worst-off language most.

The theory says: the first, the last and one in between (its case is {0, 9, 11}). Here every set is tried. Sets are chosen on validation text;
the best, the theory's and no protection at all are then measured on test text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, field_validator
from scipy.stats import spearmanr

from laaciq.corpus import Texts
from laaciq.engine.files import write_text
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder
from laaciq.errors import BadOption, BrokenTexts
from laaciq.evaluation import Estimate
from laaciq.models import LanguageModel
from laaciq.options import Bits, GridOptions, GroupSize, MeasureOptions, QuantizeOptions
from laaciq.planning.methods import METHODS, find_method
from laaciq.studies.block_sets import best_sets, block_sets, predicted_worst, set_count
from laaciq.studies.outcomes import Measure, Outcomes, Rank, outcomes
from laaciq.studies.protection import BlockSet
from laaciq.studies.set_passes import SetLosses, SetPasses, shortened
from laaciq.trials.losses import DRAWS

# What is read, at most, of every language: 320 tokens to choose by and 1,920 to report on.
VALIDATION_PASSAGES, TEST_PASSAGES, PASSAGE_TOKENS = 10, 60, 32
# Up to so many sets all are measured; beyond, the additive model proposes CANDIDATES.
EXHAUSTIVE, CANDIDATES = 500, 20
# Best sets that are measured on test text.
REPORTED = 3
# The theory's set, found on a model of twelve blocks.
PUBLISHED_SET = (0, 9, 11)
_RANKED: tuple[Measure, ...] = ("worst", "disparity")


class GatewayOptions(GridOptions):
    """What is quantized, and how many blocks are spared."""

    method: str = "rtn"
    protect: int = 3

    @field_validator("method")
    @classmethod
    def _reads_no_text(cls, method: str) -> str:
        if find_method(method).reads_text:
            fit = ", ".join(own.name for own in METHODS.values() if not own.reads_text)
            raise BadOption(f"method {method!r} reads text, which every set would do anew: give one of {fit}")
        return method


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MeasuredSet(_Result):
    """One set of protected blocks on validation text: ΔNLL per token of the worst language, max D − min D, mean ΔNLL; what the additive
    model says of the worst; bits a weight in the blocks and how many times smaller the model is than in 16 bits."""

    blocks: BlockSet
    worst: float
    worst_language: str
    disparity: float
    mean: float
    predicted_worst: float
    bits_per_weight: float
    compression: float


class ReportedSet(_Result):
    """One set on test text. `names` say why it is here; ranks are those on validation text, None where nothing is protected.
    `behind_best` is its worst ΔNLL minus that of the best set, paired."""

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


class Gateway(_Result):
    """Sets of `protect` blocks of the model's `blocks`: `sets`, as measured on validation text, best first by worst loss, and `tested`.

    `possible` is the number of all sets; where `sets` are fewer, they are the additive model's best and those of the theory, and ranks are
    among them. `best_share[measure][block]` is the share of resamples in which the set that is best by the measure, "worst" or "disparity",
    holds the block. `additive_correlation` is Spearman's, between predicted and measured worst loss; None with fewer than
    three sets or where all are alike.
    Languages that the original does not serve are named, and left out of all else.
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
        return min(self.sets, key=lambda own: getattr(own, measure))


def gateway(
    model: LanguageModel,
    validation: Texts,
    test: Texts,
    options: MeasureOptions,
    *,
    protect: int = 3,
    bits: int = 4,
    group_size: GroupSize = 64,
    symmetric: bool = True,
    method: str = "rtn",
    exhaustive: int = EXHAUSTIVE,
    store: RunFolder | None = None,
    progress: Progress | None = None,
) -> Gateway:
    """Quantize all blocks but `protect`, for every set of so many where there are at most `exhaustive`, else for the best by an additive model.

    Of every language the first 32 tokens of 10 validation and 60 test passages are read. What the `store` has is not computed again.
    """
    asked = GatewayOptions.of(protect=protect, bits=bits, group_size=group_size, symmetric=symmetric, method=method)
    count = len(model.anatomy.block_names)
    possible = set_count(count, protect)
    quantizing = QuantizeOptions(**asked.model_dump(exclude={"protect"}))
    passes = SetPasses(model, options, quantizing, store, progress or Progress())
    choosing = _read(model, validation, VALIDATION_PASSAGES, "validation part")
    reporting = _read(model, test, TEST_PASSAGES, "test part")

    original = passes.over("the original", choosing, choosing.languages, [passes.every])
    served = [code for code, own in original.items() if own.bits_per_byte(passes.every) <= options.served_bound]
    if not served:
        raise BrokenTexts(f"no language has {options.served_bound:g} bits a byte or less: raise --served-bound")
    baseline = {code: original[code].of(passes.every) for code in served}
    singles: list[BlockSet] = [(), *block_sets(count, 1)]
    alone = _outcomes(
        choosing, baseline, passes.over("single blocks", choosing, served, singles), singles, options.seed
    ).loss
    unprotected, gains = alone[0], (alone[0] - alone[1:]).T
    sets = block_sets(count, protect) if possible <= exhaustive else _candidates(unprotected, gains, protect)
    measured = passes.over("sets", choosing, served, sets)
    chosen = _outcomes(choosing, baseline, measured, sets, options.seed)

    names = _names(chosen, sets, count)
    tested = passes.over("chosen sets", reporting, served, [passes.every, *names])
    baseline = {code: own.of(passes.every) for code, own in tested.items()}
    reported = _outcomes(reporting, baseline, tested, list(names), options.seed)
    predicted = predicted_worst(np.array(sets), unprotected, gains)
    result = Gateway(
        model=model.folder.name,
        texts=test.name,
        blocks=count,
        possible=possible,
        languages=served,
        not_served=[code for code in choosing.languages if code not in served],
        validation_tokens=sum(sum(own.tokens) for own in measured.values()),
        test_tokens=sum(sum(own.tokens) for own in tested.values()),
        sets=_measured_sets(passes, chosen, sets, predicted),
        best_share={measure: _best_share(chosen, measure, sets, count) for measure in _RANKED},
        additive_correlation=_correlation(predicted, chosen.observed["worst"]),
        tested=_reported_sets(passes, chosen, sets, reported, names),
        **asked.model_dump(),
    )
    if store is not None:
        write_text(store.path / "gateway.json", result.model_dump_json(indent=1))
    return result


def _read(model: LanguageModel, texts: Texts, passages: int, part: str) -> Texts:
    few = shortened(model, texts, passages=passages, tokens=PASSAGE_TOKENS)
    for code, own in few.by_language.items():
        if len(set(own.documents)) < 2:
            raise BrokenTexts(f"{code} has one document only in the {part}: no interval can be given; give more text")
    return replace(few, name=f"{texts.name}, {part}")


def _outcomes(
    texts: Texts, baseline: dict[str, np.ndarray], found: dict[str, SetLosses], sets: list[BlockSet], seed: int
) -> Outcomes:
    loss = {code: np.stack([own.of(protected) for protected in sets]) - baseline[code] for code, own in found.items()}
    tokens = {code: np.array(own.tokens) for code, own in found.items()}
    return outcomes(texts, loss, tokens, draws=DRAWS, seed=seed)


def _candidates(unprotected: np.ndarray, gains: np.ndarray, protect: int) -> list[BlockSet]:
    """The additive model's best, its best with first and last block, and the theory's."""
    blocks = gains.shape[1]
    found = best_sets(unprotected, gains, protect, count=CANDIDATES)
    if protect > 2:
        inner = best_sets(
            unprotected - gains[:, [0, -1]].sum(1), gains[:, 1:-1], protect - 2, count=min(CANDIDATES, blocks - 2)
        )
        found += [(0, *(block + 1 for block in own), blocks - 1) for own in inner]
    elif protect == 2:
        found.append((0, blocks - 1))
    if protect == len(PUBLISHED_SET) and blocks > max(PUBLISHED_SET):
        found.append(PUBLISHED_SET)
    return list(dict.fromkeys(found))


def _names(chosen: Outcomes, sets: list[BlockSet], blocks: int) -> dict[BlockSet, list[str]]:
    """The sets to be measured on test text, and why each."""
    names: dict[BlockSet, list[str]] = {}
    by_rank = sorted(range(len(sets)), key=lambda index: chosen.observed["worst"][index])
    for place, index in enumerate(by_rank[:REPORTED]):
        names[sets[index]] = ["best"] if place == 0 else []
    names.setdefault(sets[chosen.best("disparity")], []).append("least disparity")
    if gates := [index for index, own in enumerate(sets) if {0, blocks - 1} <= set(own)]:
        names.setdefault(sets[chosen.best("worst", gates)], []).append("first, best, last")
    if PUBLISHED_SET in sets:
        names.setdefault(PUBLISHED_SET, []).append("published")
    return {**names, (): ["none"]}


def _measured_sets(
    passes: SetPasses, chosen: Outcomes, sets: list[BlockSet], predicted: np.ndarray
) -> list[MeasuredSet]:
    found = []
    for index, own in enumerate(sets):
        size = passes.plan(own).size
        found.append(
            MeasuredSet(
                blocks=own,
                worst=chosen.observed["worst"][index],
                worst_language=chosen.worst_language(index),
                disparity=chosen.observed["disparity"][index],
                mean=chosen.observed["mean"][index],
                predicted_worst=predicted[index],
                bits_per_weight=size.block_bits_per_weight,
                compression=size.compression,
            )
        )
    return sorted(found, key=lambda own: own.worst)


def _best_share(chosen: Outcomes, measure: Measure, sets: list[BlockSet], blocks: int) -> list[float]:
    best = chosen.best_draws(measure)
    held = np.array([[block in own for block in range(blocks)] for own in sets])
    return held[best].mean(0).tolist()


def _correlation(predicted: np.ndarray, measured: np.ndarray) -> float | None:
    if len(measured) < 3 or not np.ptp(predicted) or not np.ptp(measured):
        return None
    return float(spearmanr(predicted, measured)[0])


def _reported_sets(
    passes: SetPasses, chosen: Outcomes, sets: list[BlockSet], reported: Outcomes, names: dict[BlockSet, list[str]]
) -> list[ReportedSet]:
    found = []
    for index, (own, reasons) in enumerate(names.items()):
        size = passes.plan(own).size
        place = sets.index(own) if own else None
        found.append(
            ReportedSet(
                names=reasons,
                blocks=own,
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
    return found
