"""Sensitivity: ΔNLL by language if only one block, the embeddings or the head is quantized; critical blocks by language; correlation of κ_l
with sensitivity.

Losses nearly add in ΔNLL. The result shows how nearly: the sum of the single losses over the loss of all parts together.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from laaciq.corpus import Texts
from laaciq.engine.display import Displayed
from laaciq.models import LanguageModel
from laaciq.options import Bits, GridOptions, GroupSize
from laaciq.stats.correlation import Correlation, pearson
from laaciq.stats.estimate import Estimate
from laaciq.strict import StrictModel
from laaciq.studies.texts import require_documents
from laaciq.trials.candidate import RoundedMatrices
from laaciq.trials.losses import Losses
from laaciq.trials.session import Session

EMBEDDINGS, HEAD = "embeddings", "head"
TOGETHER = "together"


class Sensitivity(Displayed, StrictModel):
    """ΔNLL per token of each part alone: `loss[language]` is along `parts`.

    `parts` are "block 0", "block 1", …, "embeddings", "head"; a tied head belongs to the embeddings. `together` is the loss if all parts
    are quantized at once; `additive_share` is the sum of the single losses over it: 1 if losses add, None if `together` is not beyond
    noise. `critical_blocks` is the smallest set of blocks that accounts for half of the language's summed positive block losses, worst
    first. `kurtosis` is κ_l by block; `kurtosis_correlation` relates it to the block's loss, averaged over languages, and is None with
    fewer than three blocks. Languages that the original does not serve are listed and otherwise left out.
    """

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


def sensitivity(session: Session, texts: Texts, grid: GridOptions, *, part: str = "calibration") -> Sensitivity:
    """Every part of the model rounded to nearest, one at a time, and every language measured: one pass over the texts for the original, one
    per part, and one for all parts together.

    If bits are chosen from the result, the choice has seen these texts: use calibration text here, and report on test text.
    """
    require_documents(texts, part, session.progress)
    parts = parts_of(session.original)
    candidates = [RoundedMatrices(name, frozenset(matrices), grid) for name, matrices in parts.items()]
    candidates.append(RoundedMatrices(TOGETHER, frozenset().union(*parts.values()), grid))
    once = session.costs.measuring(texts)
    session.announce(
        f"Rounding {len(parts)} parts of {session.folder.name} to {grid.bits} bits, one at a time, and measuring "
        f"{len(texts.languages)} languages each time ({texts.name}, {part} part).",
        # `once` has two passes: here the original and every candidate have one each.
        [session.costs.loading(), replace(once, seconds=once.seconds * (1 + len(candidates)) / 2)],
    )
    original = session.original_losses(texts, part=part)
    served = [code for code, losses in original.items() if losses.bits_per_byte <= session.options.served_bound]
    measured = session.losses_of_each(candidates, texts.select(served), part=part)
    losses = {
        candidate.name: Losses.measured(by_language, parallel=texts.parallel, seed=session.options.seed)
        for candidate, by_language in zip(candidates, measured, strict=True)
    }
    return _result(session, texts, grid, losses, part)


def parts_of(model: LanguageModel) -> dict[str, set[str]]:
    """Names of the matrices of every part: blocks by number, token embeddings, and the head if it is not tied to them.

    Tables of positions or token types are small and are not quantized.
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
    """The smallest set of blocks that accounts for half of the summed positive losses, worst first; gains are ignored."""
    positive = np.maximum(losses, 0)
    if not positive.any():
        return []
    order = np.argsort(-positive, kind="stable")
    needed = int(np.searchsorted(np.cumsum(positive[order]), positive.sum() / 2)) + 1
    return order[:needed].tolist()


def pooled_kurtosis(matrices: list[torch.Tensor]) -> float:
    """κ = m₄/m₂² − 3 of all values together, 0 for a Gaussian; in float64, one matrix at a time."""
    count = sum(matrix.numel() for matrix in matrices)
    mean = sum(matrix.double().sum().item() for matrix in matrices) / count
    second, fourth = 0.0, 0.0
    for matrix in matrices:
        squares = (matrix.double() - mean) ** 2
        second += squares.sum().item() / count
        fourth += (squares**2).sum().item() / count
    # Equal values have no tails.
    return fourth / second**2 - 3 if second > 0 else 0.0


def _result(session: Session, texts: Texts, grid: GridOptions, losses: dict[str, Losses], part: str) -> Sensitivity:
    anatomy = session.original.anatomy
    parts = [name for name in losses if name != TOGETHER]
    languages, blocks = losses[TOGETHER].codes, len(anatomy.block_names)
    by_part = {name: losses_of_part.by_language() for name, losses_of_part in losses.items()}
    together = by_part[TOGETHER]
    loss = {code: [by_part[name][code] for name in parts] for code in languages}
    first, *others = (losses[name] for name in parts)
    added, at_once = first.plus(others), losses[TOGETHER]
    shares = {code: added.only([code]).mean_ratio(at_once.only([code])) for code in languages}
    kurtosis = [
        pooled_kurtosis([linear.matrix for linear in anatomy.linears if linear.block == block])
        for block in range(blocks)
    ]
    block_losses = {code: [estimate.value for estimate in loss[code][:blocks]] for code in languages}
    return Sensitivity(
        model=session.folder.name,
        texts=f"{texts.name}, {part} part",
        parts=parts,
        languages=languages,
        not_served=[code for code in texts.languages if code not in languages],
        loss=loss,
        together=together,
        # A share of a loss within noise means nothing.
        additive_share={
            code: share if together[code].low > 0 and math.isfinite(share.high) else None
            for code, share in shares.items()
        },
        critical_blocks={code: critical_blocks(np.array(values)) for code, values in block_losses.items()},
        kurtosis=kurtosis,
        kurtosis_correlation=_correlation(kurtosis, list(block_losses.values())),
        **grid.model_dump(include=set(GridOptions.model_fields)),
    )


def _correlation(kurtosis: list[float], losses: list[list[float]]) -> Correlation | None:
    """The correlation; also None if all blocks have the same κ or loss."""
    if len(kurtosis) < 3 or not losses:
        return None
    mean_loss = np.mean(losses, axis=0)
    return pearson(kurtosis, mean_loss) if np.ptp(kurtosis) > 0 and np.ptp(mean_loss) > 0 else None
