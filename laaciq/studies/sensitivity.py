"""Rise of ΔNLL by language when block l, the embeddings, or the head alone is quantized; critical blocks by language; correlation of κ_l
with sensitivity.

Losses nearly add in ΔNLL. How nearly is part of the result: the sum of the single losses over the loss of all parts together.
"""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from laaciq.corpus import Texts
from laaciq.engine.progress import Progress
from laaciq.engine.store import RunFolder, key_of
from laaciq.errors import BrokenTexts
from laaciq.evaluation import Estimate
from laaciq.models import LanguageModel
from laaciq.options import Bits, GroupSize, MeasureOptions
from laaciq.stats.bootstrap import document_counts, percentile_interval, resampled_ratios
from laaciq.stats.correlation import Correlation, pearson
from laaciq.studies.losses import ORIGINAL, Grid, PassageLosses, Passes
from laaciq.trials.losses import DRAWS

EMBEDDINGS, HEAD = "embeddings", "head"
TOGETHER = "together"


class Sensitivity(BaseModel):
    """What each part alone costs each language, in ΔNLL per token: `loss[language]` goes along `parts`.

    `parts` are "block 0", "block 1", …, "embeddings", "head"; a tied head belongs to the embeddings. `together` is the loss when all parts
    are quantized at once, `additive_share` the sum of the single losses over it: 1 where losses add, None where `together` is not beyond
    noise. `critical_blocks` is the smallest set of blocks that carries half of the language's summed positive block losses, worst first.
    `kurtosis` is κ_l by block; `kurtosis_correlation` relates it to the block's loss, averaged over languages, and is None with fewer than
    three blocks. Languages that the original does not serve are named, and left out of all else.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    model: str
    texts: str
    bits: Bits
    group_size: GroupSize
    symmetric: bool
    parts: list[str]
    languages: list[str]
    not_served: list[str]
    loss: dict[str, list[Estimate]]
    together: dict[str, Estimate]
    additive_share: dict[str, Estimate | None]
    critical_blocks: dict[str, list[int]]
    kurtosis: list[float]
    kurtosis_correlation: Correlation | None


def sensitivity(
    model: LanguageModel,
    texts: Texts,
    options: MeasureOptions,
    *,
    bits: int = 4,
    group_size: GroupSize = 64,
    symmetric: bool = True,
    store: RunFolder | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Quantize one part at a time by round to nearest and measure every language: one pass over the texts for the original, one for each
    part, one for all together. What the `store` has is not computed again.

    An allocation of bits that is chosen from the result has seen these texts: give calibration text here, and report on test text.
    """
    progress = progress or Progress()
    grid = Grid.of(bits=bits, group_size=group_size, symmetric=symmetric)
    for code, passages in texts.by_language.items():
        if len(set(passages.documents)) < 2:
            raise BrokenTexts(f"{code} has one document only: no interval can be given; at least two are needed")
    parts = parts_of(model)
    interventions = {**parts, TOGETHER: set().union(*parts.values())}
    passes = Passes(model, texts, options, grid, store, progress)
    progress.say(
        f"Quantizing {len(parts)} parts of {model.folder.name} to {bits} bits, one at a time, and measuring "
        f"{len(texts.languages)} languages each time ({texts.name}). The original comes first."
    )
    original = passes.over({ORIGINAL: set()}, texts.languages)[ORIGINAL]
    served = [code for code, found in original.items() if found.bits_per_byte <= options.served_bound]
    passes.announce(list(interventions), served)
    found = passes.over(interventions, served)

    def compute() -> Sensitivity:
        return _result(model, texts, grid, options.seed, original, found)

    keys = [passes.key(part, code) for part, code in product(interventions, served)]
    key = key_of("sensitivity", keys, model.folder.name, texts.name, texts.parallel, texts.languages)
    return compute() if store is None else store.result("sensitivity.json", Sensitivity, key, compute)


def parts_of(model: LanguageModel) -> dict[str, set[str]]:
    """Names of the matrices of every part: blocks by number, token embeddings, and the head where it is not tied to them.

    Tables of positions or token types are no token embeddings: they are small, and stay as they are.
    """
    anatomy = model.anatomy
    parts = {
        f"block {index}": {linear.name for linear in anatomy.linears if linear.block == index}
        for index in range(len(anatomy.block_names))
    }
    parts[EMBEDDINGS] = {t.name for t in anatomy.tensors if t.role == "embedding" and t.shape[0] == model.vocabulary}
    parts[HEAD] = {t.name for t in anatomy.tensors if t.role == "head"}
    return {part: names for part, names in parts.items() if names}


def critical_blocks(losses: np.ndarray) -> list[int]:
    """The smallest set of blocks that carries half of the summed positive losses, worst first; gains count as nothing."""
    positive = np.maximum(losses, 0)
    if not positive.any():
        return []
    order = np.argsort(-positive, kind="stable")
    needed = int(np.searchsorted(np.cumsum(positive[order]), positive.sum() / 2)) + 1
    return order[:needed].tolist()


def pooled_kurtosis(matrices: list[torch.Tensor]) -> float:
    """κ = m₄/m₂² − 3 of all values together, 0 for a Gaussian; in float64, a matrix at a time."""
    count = sum(matrix.numel() for matrix in matrices)
    mean = sum(matrix.double().sum().item() for matrix in matrices) / count
    second, fourth = 0.0, 0.0
    for matrix in matrices:
        squares = (matrix.double() - mean) ** 2
        second += squares.sum().item() / count
        fourth += (squares**2).sum().item() / count
    # Equal values have no tails to speak of.
    return fourth / second**2 - 3 if second > 0 else 0.0


def _result(
    model: LanguageModel,
    texts: Texts,
    grid: Grid,
    seed: int,
    original: dict[str, PassageLosses],
    found: dict[str, dict[str, PassageLosses]],
) -> Sensitivity:
    languages = list(found[TOGETHER])
    parts = [part for part in found if part != TOGETHER]
    blocks = len(model.anatomy.block_names)
    loss, together, additive, critical = {}, {}, {}, {}
    for code in languages:
        names, member = np.unique(texts[code].documents, return_inverse=True)
        counts = document_counts(len(names), draws=DRAWS, seed=seed, stream="" if texts.parallel else code)
        before = np.array(original[code].nll)
        tokens = np.bincount(member, weights=original[code].tokens)
        by_part = {part: np.bincount(member, weights=np.array(own[code].nll) - before) for part, own in found.items()}
        loss[code] = [_estimate(by_part[part], tokens, counts) for part in parts]
        together[code] = _estimate(by_part[TOGETHER], tokens, counts)
        summed = np.sum([by_part[part] for part in parts], axis=0)
        # A share of a loss that may be none means nothing.
        additive[code] = _estimate(summed, by_part[TOGETHER], counts) if together[code].low > 0 else None
        critical[code] = critical_blocks(np.array([own.value for own in loss[code][:blocks]]))
    kurtosis = [
        pooled_kurtosis([linear.matrix for linear in model.anatomy.linears if linear.block == block])
        for block in range(blocks)
    ]
    return Sensitivity(
        model=model.folder.name,
        texts=texts.name,
        parts=parts,
        languages=languages,
        not_served=[code for code in texts.languages if code not in languages],
        loss=loss,
        together=together,
        additive_share=additive,
        critical_blocks=critical,
        kurtosis=kurtosis,
        kurtosis_correlation=_correlation(kurtosis, [[own.value for own in loss[code][:blocks]] for code in languages]),
        **grid.model_dump(),
    )


def _estimate(numerator: np.ndarray, denominator: np.ndarray, counts: np.ndarray) -> Estimate:
    low, high = percentile_interval(resampled_ratios(numerator, denominator, counts))
    return Estimate(value=float(numerator.sum() / denominator.sum()), low=low, high=high)


def _correlation(kurtosis: list[float], losses: list[list[float]]) -> Correlation | None:
    """None as well where all blocks are alike: a constant correlates with nothing."""
    if len(kurtosis) < 3 or not losses:
        return None
    mean_loss = np.mean(losses, axis=0)
    return pearson(kurtosis, mean_loss) if np.ptp(kurtosis) > 0 and np.ptp(mean_loss) > 0 else None
