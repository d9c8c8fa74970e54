"""Losses of a known distribution: by language, document and passage, for two quantizations of one model.

Sizes are those of the reference model at 4 bits on the built-in texts: languages lose 0.05 to 0.15 nats per token, passages vary by 0.04 to
0.08. Their ΔNLL has a skewness of 0.15, their KL one of 1.3; `skewed` is log-normal with a skewness of 2.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal, get_args

import numpy as np

from laaciq.trials.losses import Losses

Pattern = Literal["equal", "planted", "graded"]
Distribution = Literal["gaussian", "t3", "skewed"]
# plain: a passage per document, equal tokens, no noise that languages share. parallel: documents are the same in all languages, and half of the
# variance is theirs. clustered: one to five passages per document, and half of the variance is the document's. unequal: passages differ in
# tokens, by a factor of ten. all: the three together, and languages whose spread differs by a factor of four.
Text = Literal["plain", "parallel", "clustered", "unequal", "all"]

LANGUAGES, DOCUMENTS = (4, 12, 36, 50), (8, 20, 60)
# Comparisons of two quantizations cost most, and are simulated on these alone.
COMPARED_TEXTS: tuple[Text, ...] = ("plain", "all")
# Of the right quantization; the left one loses half as much and varies less, partly together with the right one.
LOSS, SPREAD = 0.1, 0.07
LEFT_LOSS, LEFT_SPREAD, PAIRED_CORRELATION = 0.05, 0.05, 0.7
# Standard errors that a planted language is above the others, and that graded languages lie between.
APART = 5.0
# Of the logarithm of a log-normal variable: of losses, where it gives a skewness of 2, and of tokens.
SKEWED_DEVIATION, TOKENS_DEVIATION = 0.551, 0.6
MOST_PASSAGES, TOKENS = 5, 80


@dataclass(frozen=True)
class Cell:
    """What is simulated."""

    languages: int
    documents: int
    pattern: Pattern
    distribution: Distribution
    text: Text

    @property
    def name(self) -> str:
        return f"{self.languages}-{self.documents}-{self.pattern}-{self.distribution}-{self.text}"

    @property
    def cost(self) -> float:
        """Milliseconds per simulation on one core, about."""
        return 3 + 0.4 * self.languages + (10 + 2 * self.languages) * (self.text in COMPARED_TEXTS)

    @property
    def parallel(self) -> bool:
        return self.text in ("parallel", "all")

    @property
    def clustered(self) -> bool:
        return self.text in ("clustered", "all")

    @property
    def unequal(self) -> bool:
        return self.text in ("unequal", "all")

    @cached_property
    def design_effect(self) -> float:
        """By how much the variance of a loss per token exceeds that of as many documents of one size and one passage."""
        passages = np.arange(1, MOST_PASSAGES + 1) if self.clustered else np.array([1])
        squared_tokens = np.exp(TOKENS_DEVIATION**2) if self.unequal else 1.0
        of_passages = passages.mean() * squared_tokens
        of_documents = of_passages + (passages * (passages - 1)).mean()
        share = 0.5 if self.clustered else 1.0
        return float((share * of_documents + (1 - share) * of_passages) / passages.mean() ** 2)


CELLS = [
    Cell(languages, documents, pattern, distribution, text)
    for distribution, documents, pattern, languages, text in product(
        get_args(Distribution), DOCUMENTS, get_args(Pattern), LANGUAGES, get_args(Text)
    )
]


@dataclass(frozen=True)
class Pair:
    """Two quantizations on the same documents, and the losses per token that they truly have, by language."""

    left: Losses
    right: Losses
    true_left: np.ndarray
    true_right: np.ndarray


def draw_pair(cell: Cell, number: int) -> Pair:
    """The simulation of this number; every number of every cell is another one."""
    random = np.random.default_rng([zlib.crc32(cell.name.encode()), number])
    sizes = random.integers(1, MOST_PASSAGES + 1, cell.documents) if cell.clustered else np.ones(cell.documents, int)
    document = np.repeat(np.arange(cell.documents), sizes)
    tokens = np.full((cell.languages, len(document)), float(TOKENS))
    if cell.unequal:
        deviations = TOKENS_DEVIATION * random.standard_normal(tokens.shape) - TOKENS_DEVIATION**2 / 2
        tokens = np.maximum(1.0, np.rint(tokens * np.exp(deviations)))
    relative = np.geomspace(0.5, 2.0, cell.languages) if cell.text == "all" else np.ones(cell.languages)
    relative = random.permutation(relative)
    noise = _noise(random, cell, document)
    left_noise = PAIRED_CORRELATION * noise + np.sqrt(1 - PAIRED_CORRELATION**2) * _noise(random, cell, document)
    errors = relative * np.sqrt(cell.design_effect / cell.documents)
    true_right = _true_losses(cell, LOSS, SPREAD * errors, planted=cell.languages - 1)
    # Another language is the worst one on the left.
    true_left = _true_losses(cell, LEFT_LOSS, LEFT_SPREAD * errors[::-1], planted=cell.languages - 1)[::-1]
    seed = int(random.integers(2**31))

    def losses(true: np.ndarray, deviations: np.ndarray) -> Losses:
        codes = [str(place) for place in range(cell.languages)]
        by_passage = tokens * (true[:, None] + relative[:, None] * deviations)
        names = [f"document {place:02}" for place in document]
        return Losses.of(
            dict(zip(codes, by_passage, strict=True)),
            dict(zip(codes, tokens, strict=True)),
            dict.fromkeys(codes, names),
            parallel=cell.parallel,
            seed=seed,
        )

    return Pair(losses(true_left, LEFT_SPREAD * left_noise), losses(true_right, SPREAD * noise), true_left, true_right)


def _true_losses(cell: Cell, loss: float, errors: np.ndarray, *, planted: int) -> np.ndarray:
    true = np.full(cell.languages, loss)
    if cell.pattern == "planted":
        true[planted] += APART * errors[planted]
    elif cell.pattern == "graded":
        true += APART * np.median(errors) * np.linspace(0, 1, cell.languages)
    return true


def _noise(random: np.random.Generator, cell: Cell, document: np.ndarray) -> np.ndarray:
    """Of losses per token, (languages, passages), with mean 0 and variance 1."""
    of_passages = _shared(random, cell, len(document))
    if not cell.clustered:
        return of_passages
    return np.sqrt(0.5) * (_shared(random, cell, cell.documents)[:, document] + of_passages)


def _shared(random: np.random.Generator, cell: Cell, count: int) -> np.ndarray:
    """Independent along `count`; half of the variance is the same in all languages of parallel text."""
    alone = _standard(random, cell.distribution, (cell.languages, count))
    if not cell.parallel:
        return alone
    return np.sqrt(0.5) * (_standard(random, cell.distribution, (1, count)) + alone)


def _standard(random: np.random.Generator, distribution: Distribution, shape: tuple[int, int]) -> np.ndarray:
    """With mean 0 and variance 1."""
    if distribution == "t3":
        return random.standard_t(3, shape) / np.sqrt(3)
    gaussian = random.standard_normal(shape)
    if distribution == "gaussian":
        return gaussian
    variance = SKEWED_DEVIATION**2
    return (np.exp(SKEWED_DEVIATION * gaussian - variance / 2) - 1) / np.sqrt(np.exp(variance) - 1)
