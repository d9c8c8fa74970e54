"""Redundancy R(λ), in the two senses of the theory.

*Spectral*: R = H_max − H, how far a language's token representations are from using all directions of a layer alike. H is the entropy of the
normalised eigenvalues of their covariance, exp H its effective rank (Roy & Vetterli 2007), H_max = log width; all in nats.

*Predictive*: R = I(h_S; y | h_rest, λ) / I(h_all; y | λ), the share of the information on the next token y that is lost without the blocks S.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from laaciq.corpus import Passages, Texts
from laaciq.engine.threads import one_thread
from laaciq.errors import BadOption, BrokenModel, BrokenTexts
from laaciq.models import LanguageModel
from laaciq.options import MeasureOptions
from laaciq.scoring.likelihood import batches, read_through, read_tokens, score
from laaciq.scoring.sequences import ScoredPassage, prepare_all
from laaciq.strict import StrictModel

# Groups of documents. Four give the same estimate; with eight its standard error is known to some 25 %.
FOLDS = 8


# Spectral


class SpectralRedundancy(StrictModel):
    """H and R = log `width` − H of one layer in one language, in nats, corrected for sample size.

    `plug_in_entropy` is H of the sample's eigenvalues: too small by about rank / (2 · tokens). `redundancy` may be slightly below 0.
    `standard_error` is over documents; None if there is only one fold of them, and then nothing corrects for correlated tokens.
    """

    width: int
    tokens: int
    plug_in_entropy: float
    entropy: float
    standard_error: float | None

    @property
    def redundancy(self) -> float:
        return math.log(self.width) - self.entropy


class FoldedTokens:
    """Token representations of one layer in one language, with documents assigned to folds in turn.

    Up to `width` tokens are kept as they are: the products of n of them with each other have the eigenvalues of their covariance, in an n × n
    matrix. Of more tokens, counts, sums and second moments stay: folds · width² numbers of float64 (26 MB at width 640), so finish one
    language before the next.
    """

    def __init__(self, width: int, *, folds: int = FOLDS, device: torch.device | str = "cpu") -> None:
        self.width, self.device = width, device
        self.counts = [0] * folds
        self._rows: list[list[torch.Tensor]] = [[] for _ in range(folds)]
        self._moments: tuple[torch.Tensor, torch.Tensor] | None = None
        self._documents: dict[str, int] = {}

    def add(self, document: str, rows: torch.Tensor) -> None:
        """Add representations (tokens, width) of a document. All passages of a document go to the same fold."""
        fold = self._documents.setdefault(document, len(self._documents) % len(self.counts))
        self.counts[fold] += len(rows)
        self._rows[fold].append(rows.to(self.device, torch.float64))
        if sum(self.counts) > self.width:
            self._sum_up()

    def _sum_up(self) -> None:
        folds, width = len(self.counts), self.width
        if self._moments is None:
            empty = torch.zeros(folds, width + 1, width, dtype=torch.float64, device=self.device)
            self._moments = empty[:, 0], empty[:, 1:]
        sums, squares = self._moments
        for fold, kept in enumerate(self._rows):
            for rows in kept:
                sums[fold] += rows.sum(0)
                squares[fold].addmm_(rows.T, rows)
            kept.clear()

    def spectrum(self, left_out: int | None = None) -> torch.Tensor:
        """Eigenvalues of the tokens' covariance times their number, ascending, without one fold if it is given; zeros may be missing."""
        chosen = [fold for fold in range(len(self.counts)) if fold != left_out]
        if self._moments is None:
            rows = torch.cat([rows for fold in chosen for rows in self._rows[fold]])
            central = rows - rows.mean(0)
            return _eigenvalues(central @ central.T)
        sums, squares = (moment[chosen].sum(0) for moment in self._moments)
        return _eigenvalues(squares - torch.outer(sums, sums) / sum(self.counts[fold] for fold in chosen))


def spectral_redundancy(folded: FoldedTokens) -> SpectralRedundancy:
    """H by `population_entropy`, corrected by the delete-one-fold jackknife (Busing, Meijer & van der Leeden 1999, for folds of unequal
    size).

    The former removes the bias of a sample of independent tokens, to all orders in width/tokens. The latter removes, to first order, what
    remains because tokens of a document are alike or differ in norm.
    """
    tokens = sum(folded.counts)
    plug_in, entropy = _entropies(folded)
    filled = [k for k, count in enumerate(folded.counts) if count]
    error = None
    if len(filled) > 1:
        ratios = np.array([tokens / folded.counts[k] for k in filled])
        left_out = np.array([_entropies(folded, k)[1] for k in filled])
        pseudo = ratios * entropy - (ratios - 1) * left_out
        entropy = float((pseudo / ratios).sum())
        error = float(np.sqrt(((pseudo - entropy) ** 2 / (ratios - 1)).mean()))
    return SpectralRedundancy(
        width=folded.width, tokens=tokens, plug_in_entropy=plug_in, entropy=entropy, standard_error=error
    )


def spectral_entropy(eigenvalues: torch.Tensor) -> float:
    """H = −Σ p log p, p = λ / Σ λ."""
    share = eigenvalues / eigenvalues.sum()
    return -torch.special.xlogy(share, share).sum().item()


@one_thread()
def population_entropy(eigenvalues: torch.Tensor, samples: int, width: int) -> float:
    """H of the population, from the positive eigenvalues of the covariance of `samples` independent draws (less one for the mean).

    The sample's degrees of freedom at ridge u, D(u) = Σ λ/(λ+u), are the population's at κ = u / (1 − D(u)/n): the Marchenko–Pastur
    equation on the negative axis. With Σ λ = 1, −Σ t log t = lim_K ∫_0^K D(κ) dκ − log K, which integrates to

        H = 1 − n (Σ λ log λ − Σ ζ log ζ),   ζ the eigenvalues of diag(λ) − √λ √λᵀ / n.

    Exact for n, width → ∞ at any ratio as long as n exceeds the rank. Else the sample says nothing below κ₀ = n / Σ 1/λ; there D is continued
    as that of a flat spectrum with the same value and slope at κ₀ (the truth is convex between n and the width).
    """
    rank = len(eigenvalues)
    share = eigenvalues / eigenvalues.sum()
    root = share.sqrt()
    zeros = torch.linalg.eigvalsh(torch.diag(share) - torch.outer(root, root) / samples).clamp_min(0)
    entropy = 1 - samples * (torch.special.xlogy(share, share).sum() - torch.special.xlogy(zeros, zeros).sum()).item()
    if rank < samples:
        return entropy
    inverse = 1 / share
    floor = samples / inverse.sum().item()
    # −d log D / d log κ at κ₀; at most 1.
    slope = (inverse.sum() ** 2 / (samples * inverse.square().sum())).item()
    flat = -math.log1p(-slope) / slope - 1 if slope < 1 else math.inf
    return entropy + floor * min(samples * flat, width - samples)


def _entropies(folded: FoldedTokens, left_out: int | None = None) -> tuple[float, float]:
    """Plug-in and corrected H of the tokens, without one fold if it is given."""
    count = sum(folded.counts) - (0 if left_out is None else folded.counts[left_out])
    if count < 3:
        raise BrokenTexts(
            f"{count} tokens (in all, or with one fold of documents left out) have no spectrum: give more text"
        )
    samples = count - 1
    eigenvalues = folded.spectrum(left_out).flip(0)[:samples]
    eigenvalues = eigenvalues[eigenvalues > eigenvalues[0].abs() * folded.width * torch.finfo(torch.float64).eps]
    if not len(eigenvalues):
        raise BrokenTexts("all tokens have the same representation here: the entropy of its spectrum is undefined")
    return spectral_entropy(eigenvalues), population_entropy(eigenvalues, samples, folded.width)


@one_thread()
def _eigenvalues(matrix: torch.Tensor) -> torch.Tensor:
    if not matrix.isfinite().all():
        raise BrokenModel("the model computes NaN or infinite representations of these texts: it cannot be profiled")
    return torch.linalg.eigvalsh(matrix)


# Predictive


def predictive_redundancy(
    model: LanguageModel, texts: Texts, calibration: Texts, blocks: list[int], options: MeasureOptions
) -> dict[str, float]:
    """R = (NLL without S − NLL) / (NLL of unigrams − NLL) per token, by language, for a causal model and the blocks S.

    *Without S*: each block of S adds, instead of its update of the residual stream, the update's mean over the language's calibration text
    in the whole model. Given λ, a constant carries no information about y, and later blocks still get inputs of the usual size. Skipping
    the block would also remove its constant part. Start tokens and the first position keep separate means: attention sinks arise there, and
    nothing before the first token of the text depends on it.

    *Unigrams* of the language: (count in its calibration text + 1) / (tokens there + types), over the types seen there or in `texts`.

    Assumes blocks that add to a residual stream. The rest of the model is not retrained, so R is an upper estimate of what only S knows. It
    exceeds 1 if the model without S is worse than unigrams. Little calibration text raises the unigrams' NLL and lowers R: compare sets of
    blocks, or languages with calibration text of the same content. NaN if the model itself is no better than unigrams.
    """
    if model.kind != "causal":
        raise BadOption(f"{model.folder.name} is {model.kind}: predictive redundancy is defined for causal models only")
    known = len(model.anatomy.block_names)
    if strange := sorted(index for index in blocks if not 0 <= index < known):
        raise BadOption(f"{model.folder.name} has no block {strange[0]}: give numbers from 0 to {known - 1}")
    fitted = calibration.select(texts.languages)
    return {
        code: _language_redundancy(model, passages, fitted[code], blocks, options)
        for code, passages in texts.by_language.items()
    }


def unigram_nll(tokens: list[int], calibration: list[int]) -> float:
    """Mean −log p of tokens, p = (count in the calibration tokens + 1) / (calibration tokens + types of both)."""
    counts = Counter(calibration)
    total = len(calibration) + len({*tokens, *calibration})
    return math.log(total) - sum(math.log(counts[token] + 1) for token in tokens) / len(tokens)


def _language_redundancy(
    model: LanguageModel, passages: Passages, calibration: Passages, blocks: list[int], options: MeasureOptions
) -> float:
    prepared = prepare_all(model, passages, options)
    fitted = prepare_all(model, calibration, options)
    # What comes before the first scored token: the start tokens or, where there are none, the first token of the text.
    leading = next(sequence.positions[0] for passage in fitted for sequence in passage.sequences) + 1
    updates = _mean_updates(model, fitted, sorted(set(blocks)), leading)
    scores = score(model, _without_blocks(model, updates), prepared)
    tokens = scores.tokens.sum()
    nll, nll_without = scores.original_nll.sum() / tokens, scores.quantized_nll.sum() / tokens
    zero = unigram_nll(_targets(prepared), _targets(fitted))
    return float((nll_without - nll) / (zero - nll)) if zero > nll else math.nan


def _targets(passages: list[ScoredPassage]) -> list[int]:
    return [token for passage in passages for sequence in passage.sequences for token in sequence.targets]


@dataclass(frozen=True)
class _MeanUpdate:
    """A block's mean update of the residual stream: (leading, width), by position, and (width), over all later positions."""

    leading: torch.Tensor
    later: torch.Tensor

    def over(self, positions: int) -> torch.Tensor:
        later = self.later.expand(max(0, positions - len(self.leading)), -1)
        return torch.cat([self.leading[:positions], later])


@torch.inference_mode()
def _mean_updates(
    model: LanguageModel, passages: list[ScoredPassage], blocks: list[int], leading: int
) -> dict[int, _MeanUpdate]:
    """Mean of output − input of these blocks, for each position below `leading` and pooled from there on."""
    if not blocks:
        return {}
    sums: dict[int, torch.Tensor] = {}
    counts = torch.zeros(leading + 1, dtype=torch.float64, device=model.device)
    place = torch.empty(0)

    def adding(index: int) -> Callable[..., None]:
        def hook(block: Any, args: Any, kwargs: Any, output: Any) -> None:
            update = (_hidden(output) - _entering(args, kwargs)).double()
            if index not in sums:
                sums[index] = torch.zeros(leading + 2, update.shape[-1], dtype=torch.float64, device=update.device)
            sums[index].index_add_(0, place.flatten(), update.flatten(0, 1))

        return hook

    names = model.anatomy.block_names
    handles = [model.module.get_submodule(names[i]).register_forward_hook(adding(i), with_kwargs=True) for i in blocks]
    try:
        for _, sequences in batches(passages, read_tokens(model)):
            lengths = torch.tensor([len(s.inputs) for s in sequences], device=model.device)
            position = torch.arange(int(lengths.max()), device=model.device)
            # Padding goes to a last row that is thrown away.
            place = position.clamp_max(leading).where(position < lengths[:, None], leading + 1)
            counts += place.flatten().bincount(minlength=leading + 2)[:-1]
            read_through(model, sequences)
    finally:
        for handle in handles:
            handle.remove()
    means = {index: total[:-1] / counts.clamp_min(1)[:, None] for index, total in sums.items()}
    return {index: _MeanUpdate(mean[:-1], mean[-1]) for index, mean in means.items()}


def _without_blocks(model: LanguageModel, updates: dict[int, _MeanUpdate]) -> LanguageModel:
    """A model that shares all weights with `model`, and whose blocks in `updates` add their mean update only."""
    tensors = (*model.module.parameters(), *model.module.buffers())
    # Offloaded blocks fetch them where the model's do.
    source = () if model.offloaded is None else (model.offloaded.source,)
    module = copy.deepcopy(model.module, {id(part): part for part in (*tensors, *source)})

    def replacing(mean: _MeanUpdate) -> Callable[..., Any]:
        def hook(block: Any, args: Any, kwargs: Any, output: Any) -> Any:
            entering = _entering(args, kwargs)
            hidden = (entering.double() + mean.over(entering.shape[1])).to(entering.dtype)
            return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

        return hook

    for index, mean in updates.items():
        block = module.get_submodule(model.anatomy.block_names[index])
        block.register_forward_hook(replacing(mean), with_kwargs=True)
    return replace(model, module=module)


def _entering(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    return args[0] if args else kwargs["hidden_states"]


def _hidden(output: Any) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output
